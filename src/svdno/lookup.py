"""Things that users name in text: equations, models and their arguments."""

from collections.abc import Mapping
from inspect import signature
from typing import Any, TypeVar, get_type_hints

from svdno.errors import InputError, check_type

T = TypeVar("T")


def list_settings(kind: str, known: Mapping[str, type[T]], name: str) -> list[str]:
    """The arguments that the `kind` of thing called `name` takes; an unknown name is an error that lists the known."""
    if name not in known:
        raise InputError(f"unknown {kind} {name!r}; there is {', '.join(known)}.")
    return list(signature(known[name]).parameters)


def construct(kind: str, known: Mapping[str, type[T]], name: str, arguments: Mapping[str, Any]) -> T:
    """Make the `kind` of thing called `name`.

    An unknown name or argument is an error that lists the known ones, and a value of the wrong type one that says so.
    """
    takes = list_settings(kind, known, name)
    unknown = sorted(set(arguments) - set(takes))
    if unknown:
        raise InputError(f"{kind} {name!r} has no setting {', '.join(unknown)}; it has {', '.join(takes)}.")
    types = get_type_hints(known[name].__init__)
    return known[name](**{key: check_type(key, value, types[key]) for key, value in arguments.items()})
