"""Recipes: TOML in, frozen settings out, mistakes named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svdno.errors import InputError
from svdno.recipe import bundled_recipes, parse_changes, read_recipe

MINIMAL = """
label = "mine"
[data]
equation = "allen-cahn"
samples = 10
[model]
name = "svdno"
[training]
epochs = 3
"""


@pytest.mark.parametrize("name", bundled_recipes())
def test_bundled_recipes_read_and_survive_a_round_trip(name, tmp_path):
    recipe = read_recipe(name)
    copy = tmp_path / "copy.toml"
    copy.write_text(recipe.to_toml(), encoding="utf-8")
    assert read_recipe(copy) == recipe


def test_a_recipe_extends_another_and_replaces_the_model_as_a_whole():
    demo, fno = read_recipe("demo"), read_recipe("demo-fno")
    assert fno.data == demo.data
    assert fno.training == demo.training
    assert fno.label == "FNO"
    assert "rank" not in fno.model


def test_changes_reach_their_place():
    recipe = read_recipe("demo", {"training.epochs": 3, "model.rank": 5, "data.parameters.frames": 7})
    assert recipe.training.epochs == 3
    assert recipe.model["rank"] == 5
    assert recipe.data.parameters == {"frames": 7}


def test_a_training_is_as_long_as_its_epochs_or_the_time_it_has():
    plain, timed = (
        read_recipe("demo", changes).training for changes in ({"training.epochs": 50}, {"training.seconds": 60})
    )
    assert (plain.length, timed.length) == ("50", "those of 60 s")
    assert (plain.share_done(5, 1e6), timed.share_done(5, 30.0), timed.share_done(1, 70.0)) == (0.1, 0.5, 1.0)


def test_values_on_the_command_line_are_toml_or_text():
    assignments = ["a=1", "b=2.5", "c=true", "d=mlp", 'e="x"', "f=[1, 2]", "g=1e-3"]
    assert parse_changes(assignments) == {
        "a": 1, "b": 2.5, "c": True, "d": "mlp", "e": "x", "f": [1, 2], "g": 1e-3,
    }  # fmt: skip


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20))
def test_any_label_survives_a_round_trip(label):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.toml"
        path.write_text(read_recipe("demo", {"label": label}).to_toml(), encoding="utf-8")
        assert read_recipe(path).label == label


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("samples = 10", "sample = 10", r"unknown setting 'sample' in \[data\]; it takes equation, samples"),
        ("label", "title", "unknown setting 'title' in recipe; it takes label"),
        ("epochs = 3", 'epochs = "3"', "`training.epochs` must be a whole number, got '3'"),
        ("epochs = 3", "epochs = true", "`training.epochs` must be a whole number, got True"),
        ("epochs = 3", "epochs = 0", "`epochs` must be at least 1, got 0"),
        ("epochs = 3", "epochs = 3\nlearning_rate = -1", "`learning_rate` must be positive, got -1"),
        ("epochs = 3", 'epochs = 3\nschedule = "linear"', "must be one of 'one-cycle', 'cosine', 'step', 'constant'"),
        ("epochs = 3", 'epochs = 3\nsymmetries = "shift"', "must be a list of texts, got 'shift'"),
        (
            "epochs = 3",
            'epochs = 3\nsymmetries = ["turn"]',
            "must be one of 'equation', 'shift', 'mirror', 'swap', got 'turn'",
        ),
        ("epochs = 3", "", r"\[training\] is incomplete.*epochs"),
        ("samples = 10", "samples = 10\ntrain = 0.9\nvalidation = 0.1", "leave samples for the test"),
        ('name = "svdno"', "rank = 3", "needs a `name`"),
        ("[training]\nepochs = 3", "", "lacks training"),
        ("[data]", "[data", "is not a TOML document"),
    ],
)
def test_mistakes_are_named(old, new, message, tmp_path):
    path = tmp_path / "recipe.toml"
    assert old in MINIMAL
    path.write_text(MINIMAL.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        read_recipe(path)


def test_a_recipe_that_extends_itself_is_named(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(f'extends = "{path}"')
    with pytest.raises(InputError, match="extends itself"):
        read_recipe(path)


def test_an_unknown_recipe_lists_the_known_ones():
    with pytest.raises(InputError, match=r"no recipe 'dmeo'.*demo, demo-fno"):
        read_recipe("dmeo")


def test_set_without_a_value_is_named():
    with pytest.raises(InputError, match=r"--set takes key=value, such as training.epochs=20; got 'epochs'"):
        parse_changes(["epochs"])
