"""Values from recipes against the annotations of what they are for."""

import pytest

from svdno.equations import EQUATIONS
from svdno.errors import InputError, check_type
from svdno.lookup import construct
from svdno.models import ALL_MODELS

CHANNELS = {"in_channels": 1, "out_channels": 2, "dim": 1}


@pytest.mark.parametrize(
    ("model", "setting", "value", "message"),
    [
        ("uno", "n_modes", 12, "`n_modes` must be a list of whole numbers, got 12"),
        ("uno", "n_modes", [12, 2.5], r"`n_modes` must be a list of whole numbers, got \[12, 2.5\]"),
        ("svdno", "truncation", "half", "`truncation` must be a whole number, got 'half'"),
        ("svdno", "rank", True, "`rank` must be a whole number, got True"),
        ("svdno-plus", "output_kernel", 1, "`output_kernel` must be true or false, got 1"),
        ("deeponet", "sensors", 0.5, "`sensors` must be a whole number or a list of whole numbers, got 0.5"),
        ("uno", "padding", "none", "`padding` must be a number, got 'none'"),
    ],
)
def test_a_value_of_another_type_is_named(model, setting, value, message):
    with pytest.raises(InputError, match=message):
        construct("model", ALL_MODELS, model, {**CHANNELS, setting: value})


def test_whole_numbers_are_numbers():
    assert construct("equation", EQUATIONS, "allen-cahn", {"end": 2}).end == 2.0
    assert isinstance(check_type("end", 2, float), float)
    assert check_type("rank", None, int | None) is None
    assert check_type("parameters", {"a": 1}, dict[str, int]) == {"a": 1}
