"""The learning rate, as a function of the step and of the time: a run that continues needs no memory of it."""

from dataclasses import dataclass, field
from math import cos, pi
from time import perf_counter

from svdno.recipe import TrainingSettings

# One cycle: the part of the steps that goes up, the rate at the start and at the end relative to the peak.
RISE, START, END = 0.3, 1 / 25, 1 / 250_000


# A training with a limit of time may begin anywhere on the schedule: its first steps, so many, are shorter.
APPROACH = 300


@dataclass
class Clock:
    """The seconds of a training, and those it has.

    limit: seconds it has, or 0 for no limit
    before: seconds before this process continued it
    steps: since this process began
    """

    limit: float
    before: float = 0.0
    steps: int = 0
    start: float = field(default_factory=lambda: perf_counter())

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return self.before + perf_counter() - self.start

    def is_up(self) -> bool:
        """Whether no time is left."""
        return self.limit > 0 and self.seconds >= self.limit


def limited_rate(settings: TrainingSettings, step: int, steps_per_epoch: int, clock: Clock) -> float:
    """η of the given step, or where time is short of the later one that it is time for."""
    if not clock.limit:
        return learning_rate(settings, step, steps_per_epoch)
    due = min(clock.seconds / clock.limit, 1.0) * (settings.epochs * steps_per_epoch - 1)
    return learning_rate(settings, max(step, due), steps_per_epoch) * min((clock.steps + 1) / APPROACH, 1.0)


def learning_rate(settings: TrainingSettings, step: int | float, steps_per_epoch: int) -> float:
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
