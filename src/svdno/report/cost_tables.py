"""Tables of cost: what methods take to train and to use, and after how many solves training has paid."""

import math

from svdno.report.error_tables import shorten
from svdno.report.sheets import Cell, Sheet, quantity, spread, word
from svdno.report.solver_curves import Curves, Point
from svdno.report.studies import Entry, Study

_COLUMNS = (  # title, recorded number, factor
    ("Parameters", "parameters", 1.0),
    ("Memory (MB)", "peak_memory_bytes", 1e-6),
    ("s / epoch", "seconds_per_epoch", 1.0),
    ("Training (s)", "train_seconds", 1.0),
    ("Latency (ms)", "latency_seconds", 1e3),
    ("Samples / s", "samples_per_second", 1.0),
)


def tabulate_cost(study: Study) -> Sheet:
    """Table 2: parameters, peak memory, seconds per epoch, training time, latency and throughput."""
    several = len(list_devices(study)) > 1
    rows = []
    for equation, title in study.equations.items():
        for entry in study.with_ablations(equation):
            numbers = [quantity(entry.average(key), factor) for _, key, factor in _COLUMNS]
            rows.append(
                [word(shorten(title)), word(entry.label), *numbers, *([_name_device(entry)] if several else [])]
            )
    header = ["Equation", "Method", *(title for title, _, _ in _COLUMNS), *(["Device"] if several else [])]
    note = (
        "Means over seeds. Memory is the peak while training: what PyTorch took on a GPU, the whole process on a CPU. "
        f"Latency is of one sample from input field to solution, samples / s in batches of 32. {explain_times(study)}"
    )
    return Sheet("cost", "Cost of training and use", header, rows, note, words=2, groups=True)


def tabulate_ranks(study: Study) -> Sheet | None:
    """Error, parameters, memory and seconds per epoch of methods that differ in the rank L alone, if there are any."""
    rows = [
        [
            word(shorten(title)), word(entry.recipe.model["rank"]), spread(entry.estimate("relative_l2"), 100.0),
            *(quantity(entry.average(key), factor) for _, key, factor in _COLUMNS[:3]),
        ]
        for equation, title in study.equations.items()
        for entry in study.ranks(equation)
    ]  # fmt: skip
    header = ["Equation", "L", "Rel. L2 (%)", *(title for title, _, _ in _COLUMNS[:3])]
    note = "Methods that differ in the rank L alone. ± is half of the 95 % confidence interval of the mean over seeds."
    return Sheet("rank", "Error and cost by rank", header, rows, note, words=2, groups=True) if rows else None


def tabulate_break_even(study: Study, curves: Curves) -> Sheet | None:
    """After how many solves training has paid: train seconds / (solver's − model's seconds per sample)."""
    rows = []
    for equation, title in study.equations.items():
        for entry in study.of(equation) if equation in curves.points else []:
            speed = entry.average("samples_per_second")
            if speed is None:
                continue
            peer = choose_peer(curves.points[equation], entry.error)
            rows.append([
                word(shorten(title)), word(entry.label), quantity(entry.error, 100.0),
                quantity(entry.average("train_seconds")), quantity(1 / speed, 1e3),
                Cell(f"{peer.resolution:g}", peer.resolution), quantity(peer.relative_error, 100.0),
                quantity(peer.seconds_per_sample, 1e3), _count_solves(entry, 1 / speed, peer),
            ])  # fmt: skip
    if not rows:
        return None
    header = [
        "Equation", "Method", "Rel. L2 (%)", "Training (s)", "Model (ms)", "Solver's points", "Solver's error (%)",
        "Solver (ms)", "Pays after",
    ]  # fmt: skip
    return Sheet("break-even", "Solves after which training has paid", header, rows, _explain(study, curves), 2, True)


def choose_peer(points: list[Point], error: float) -> Point:
    """The fastest resolution of the solver that is as accurate as a model, or the most accurate one."""
    accurate = [point for point in points if point.relative_error <= error]
    if accurate:
        return min(accurate, key=lambda point: point.seconds_per_sample)
    return min(points, key=lambda point: point.relative_error)


def count_solves(train_seconds: float, model_seconds: float, solver_seconds: float) -> float:
    """n = train seconds / (solver's − model's seconds per sample); infinite where the solver is not slower."""
    saved = solver_seconds - model_seconds
    return train_seconds / saved if saved > 0 else math.inf


def explain_times(study: Study) -> str:
    """Where the times come from."""
    if study.apart:
        return (
            f"Memory, without the data, and times were measured apart, one method after the other on {study.apart}; "
            "methods that were not have none."
        )
    return (
        "Times compare only between runs that had the same device to themselves; "
        f"here: {', '.join(list_devices(study))}."
    )


def list_devices(study: Study) -> list[str]:
    """The devices that the runs of a study used."""
    return sorted({_name_device(entry).text for entry in study.entries})


def _name_device(entry: Entry) -> Cell:
    return word(", ".join(sorted({str(run.environment.get("device", "unknown")) for run in entry.runs})))


def _count_solves(entry: Entry, model_seconds: float, peer: Point) -> Cell:
    solves = count_solves(entry.average("train_seconds") or 0.0, model_seconds, peer.seconds_per_sample)
    return Cell("never", math.inf) if math.isinf(solves) else Cell(f"{math.ceil(solves):,}", solves)


def _explain(study: Study, curves: Curves) -> str:
    note = (
        "n = training time / (solver's − model's seconds per sample), both in batches, against the fastest resolution "
        "of the classical solver that is as accurate as the model, or its most accurate one. The solves that made the "
        "training data come on top."
    )
    if [curves.device] != list_devices(study):
        note += f" The solver ran on {curves.device}, the models on {', '.join(list_devices(study))}."
    return note
