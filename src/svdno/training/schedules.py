"""The learning rate at each step, as a function of the step alone: a run that continues needs no memory of it."""

from math import cos, pi

from svdno.recipe import TrainingSettings

# One cycle: the part of the steps that goes up, the rate at the start and at the end relative to the peak.
RISE, START, END = 0.3, 1 / 25, 1 / 250_000


def learning_rate(settings: TrainingSettings, step: int, steps_per_epoch: int) -> float:
    """η of the given step, counted from 0.

    constant    η
    step        η 2^{−⌊epoch/step_epochs⌋}
    cosine      η ½(1 + cos(π step/steps))
    one-cycle   from η/25 up to η over the first 30 % of the steps, then down to nothing, both along half a cosine
    """
    peak, steps = settings.learning_rate, settings.epochs * steps_per_epoch
    if settings.schedule == "step":
        return peak * 0.5 ** (step // (settings.step_epochs * steps_per_epoch))
    if settings.schedule == "cosine":
        return _between(peak, 0.0, step / steps)
    if settings.schedule == "one-cycle":
        top, last = RISE * steps - 1, steps - 1
        if step <= top:
            return _between(START * peak, peak, step / top if top > 0 else 1.0)
        return _between(peak, END * peak, (step - top) / (last - top))
    return peak


def _between(start: float, end: float, part: float) -> float:
    """Half a cosine from start (part 0) to end (part 1)."""
    return end + (start - end) * (1 + cos(pi * part)) / 2
