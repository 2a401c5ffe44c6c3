"""Learning rates against PyTorch's own schedulers."""

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, StepLR

from svdno import TrainingSettings
from svdno.training.schedules import APPROACH, Clock, learning_rate, limited_rate

EPOCHS, BATCHES, PEAK = 6, 7, 3e-3


def theirs(build) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)
    scheduler, rates = build(optimizer), []
    for _ in range(EPOCHS * BATCHES):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step() if len(rates) < EPOCHS * BATCHES else None
    return rates


@pytest.mark.parametrize(
    ("schedule", "build"),
    [
        ("one-cycle", lambda o: OneCycleLR(o, PEAK, total_steps=EPOCHS * BATCHES)),
        ("cosine", lambda o: CosineAnnealingLR(o, EPOCHS * BATCHES)),
        ("step", lambda o: StepLR(o, 2 * BATCHES, gamma=0.5)),
        ("constant", lambda o: StepLR(o, 10**6)),
    ],
)
def test_learning_rates_are_those_of_pytorch(schedule, build):
    settings = TrainingSettings(epochs=EPOCHS, learning_rate=PEAK, schedule=schedule, step_epochs=2)
    ours = [learning_rate(settings, step, BATCHES) for step in range(EPOCHS * BATCHES)]
    assert ours == pytest.approx(theirs(build), rel=1e-6, abs=1e-12)


def test_one_cycle_works_from_a_single_step_on():
    settings = TrainingSettings(epochs=1, schedule="one-cycle")
    for steps in (1, 2, 3, 4):
        assert all(0 <= learning_rate(settings, step, steps) <= 1e-3 for step in range(steps))


@pytest.mark.parametrize("schedule", ["one-cycle", "cosine", "step", "constant"])
def test_where_time_is_short_the_schedule_hurries_and_elsewhere_it_does_not(schedule):
    settings = TrainingSettings(epochs=EPOCHS, seconds=10.0, learning_rate=PEAK, schedule=schedule, step_epochs=2)
    last = EPOCHS * BATCHES - 1

    def rate(step, seconds, steps=APPROACH):
        return limited_rate(settings, step, BATCHES, Clock(10.0, before=seconds, steps=steps))

    for seconds in (0.0, 4.0, 10.0, 12.0):
        expected = learning_rate(settings, min(seconds / 10, 1) * last, BATCHES)
        assert rate(0, seconds) == pytest.approx(expected, rel=1e-3, abs=1e-9)
    assert rate(last, 0.0) == pytest.approx(learning_rate(settings, last, BATCHES))
    assert rate(5, 5.0, steps=APPROACH // 10 - 1) == pytest.approx(0.1 * rate(5, 5.0), rel=1e-3)
