"""The one exception for bad input: what was expected, what came, what to do; and checks that raise it."""

from collections.abc import Mapping, Sequence
from math import inf
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

# Points along an axis, frames or terms beyond this are a slip: nothing holds them.
MOST = 10_000_000

# What TOML calls its values; bool is no int here.
WORDS: dict[Any, str] = {
    int: "whole number", float: "number", str: "text", bool: "true or false", dict: "table", Mapping: "table",
    list: "list", tuple: "list", Sequence: "list",
}  # fmt: skip


class InputError(ValueError):
    """Input that cannot be used as it is; the command line prints the message and exits with status 2."""


def check_type(name: str, value: Any, expected: Any) -> Any:
    """Return `value`, a whole number as a float where those are `expected`; of another type it is an error.

    expected: a type, as annotations have it; of lists the entries are checked as well
    """
    if not _fits(value, expected):
        raise InputError(f"`{name}` must be {_describe(expected)}, got {value!r}.")
    return float(value) if expected is float else value


def _fits(value: Any, expected: Any) -> bool:
    if isinstance(expected, UnionType):
        return any(_fits(value, kind) for kind in get_args(expected))
    kind, entry = _take_apart(expected)
    if WORDS.get(kind) == "list":
        return isinstance(value, list | tuple) and all(_fits(one, entry) for one in value)
    if WORDS.get(kind) == "table":
        return isinstance(value, dict)
    return kind is Any or type(value) is kind or (kind is float and type(value) is int)


def _describe(expected: Any) -> str:
    """The type in words: a whole number, a list of whole numbers."""
    if isinstance(expected, UnionType):
        kinds = (_describe(kind) for kind in get_args(expected) if kind is not NoneType)
        return " or ".join(dict.fromkeys(kinds))
    kind, entry = _take_apart(expected)
    word = WORDS.get(kind, str(kind))
    if word == "list" and entry is not Any:
        return f"a list of {WORDS[entry]}s"
    return word if kind in (bool, str) else f"a {word}"


def _take_apart(expected: Any) -> tuple[Any, Any]:
    """list[int] → list, int; of anything else the entries may be Any."""
    return get_origin(expected) or expected, (*get_args(expected), Any)[0]


def choose(name: str, value: str, known: tuple[str, ...]) -> str:
    """Return `value` if it is one of the `known` ones, otherwise say which are."""
    if value not in known:
        raise InputError(f"`{name}` must be one of {', '.join(map(repr, known))}, got {value!r}.")
    return value


def check_positive(settings: object, *names: str) -> None:
    """Check that the named attributes are positive and finite."""
    for name in names:
        value = getattr(settings, name)
        if not 0 < value < inf:
            raise InputError(f"`{name}` must be positive{' and finite' if value == inf else ''}, got {value}.")


def check_at_least(settings: object, **least: int) -> None:
    """Check that the named attributes are no smaller than stated."""
    for name, smallest in least.items():
        if getattr(settings, name) < smallest:
            raise InputError(f"`{name}` must be at least {smallest}, got {getattr(settings, name)}.")


def check_sizes(settings: object, **least: int) -> None:
    """Check that the named attributes are no smaller than stated, and no larger than MOST."""
    check_at_least(settings, **least)
    for name in least:
        if getattr(settings, name) > MOST:
            raise InputError(f"`{name}` must be at most {MOST:,}, got {getattr(settings, name):,}.")
