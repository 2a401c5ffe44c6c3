"""The one exception for bad input: what was expected, what came, what to do."""


class InputError(ValueError):
    """Input that cannot be used as it is; the command line prints the message and exits with status 2."""


def choose(name: str, value: str, known: tuple[str, ...]) -> str:
    """Return `value` if it is one of the `known` ones, otherwise say which are."""
    if value not in known:
        raise InputError(f"`{name}` must be one of {', '.join(map(repr, known))}, got {value!r}.")
    return value


def check_positive(settings: object, *names: str) -> None:
    """Check that the named attributes are positive."""
    for name in names:
        if not getattr(settings, name) > 0:
            raise InputError(f"`{name}` must be positive, got {getattr(settings, name)}.")


def check_at_least(settings: object, **least: int) -> None:
    """Check that the named attributes are no smaller than stated."""
    for name, smallest in least.items():
        if getattr(settings, name) < smallest:
            raise InputError(f"`{name}` must be at least {smallest}, got {getattr(settings, name)}.")
