"""The report: report.md, report.html, tables/*.csv, tables/*.tex and figures/*.png, *.svg in one folder."""

from base64 import b64encode
from dataclasses import replace
from pathlib import Path

from svdno.errors import InputError
from svdno.report import published
from svdno.report.collect import Collection, collect
from svdno.report.error_tables import shorten
from svdno.report.page import Picture, read_template
from svdno.report.sections import Illustration, Item, Section, describe_study
from svdno.report.sheets import Sheet, to_csv, to_latex, to_markdown
from svdno.report.solver_curves import read_curves
from svdno.report.step_costs import read_costs, take_costs
from svdno.report.studies import Study
from svdno.report.tables import percent


def write_report(
    folders: list[Path],
    output: Path,
    solvers: Path | None = None,
    against: str = published.REFERENCE,
    steps: Path | None = None,
) -> Collection:
    """Collect the runs below the folders, write everything into `output`, and return what was found.

    solvers: a record of the classical solvers' error and time, by benchmarks/solver_curve.py
    against: label of the method that the others are tested against
    steps: a record of what methods cost with the machine to themselves, by benchmarks/steps.py
    """
    curves, costs = read_curves(solvers), read_costs(steps) if steps else None
    collection = _test_against(against, collect(folders))
    if costs:
        collection = replace(collection, studies=[take_costs(study, costs) for study in collection.studies])
    sections = []
    for number, study in enumerate(collection.studies, start=1):
        several = len(collection.studies) > 1
        for section in describe_study(study, curves):
            title = f"{number}. {study.name}: {section.title}" if several else section.title
            items = [_prefix(item, f"{number}-") for item in section.items] if several else section.items
            sections.append(Section(title, items))
    for name in ("tables", "figures"):
        (output / name).mkdir(parents=True, exist_ok=True)
    for item in (item for section in sections for item in section.items):
        _write_item(item, output)
    (output / "report.md").write_text(_to_markdown(collection, sections), encoding="utf-8")
    (output / "report.html").write_text(_to_html(collection, sections, output), encoding="utf-8")
    return collection


def describe_results(collection: Collection) -> list[str]:
    """One sentence for each study: who has the smallest errors."""
    several = len(collection.studies) > 1
    return [
        (f"{number}. {study.name}. " if several else "") + describe_winners(study)
        for number, study in enumerate(collection.studies, start=1)
    ]


def describe_winners(study: Study) -> str:
    """Say which method has the smallest error on each equation, and how SVD-NO does where it is another."""
    parts = []
    for equation, title in study.equations.items():
        best, ours = min(study.of(equation), key=lambda e: e.error), study.find(equation, published.REFERENCE)
        beside = f" ({published.REFERENCE} {percent(ours.error)})" if ours and ours is not best else ""
        parts.append(f"{best.label} on {shorten(title)}, {percent(best.error)}{beside}")
    return f"Smallest mean relative L2 error: {'; '.join(parts)}."


def describe_protocols(collection: Collection) -> str | None:
    """Say that there are several protocols and are shown apart; None for one."""
    if len(collection.studies) == 1:
        return None
    return (
        f"These runs are of {len(collection.studies)} protocols: other data, another budget, or another recipe of the "
        f"same method. Each has tables of its own, and no number is averaged over two of them."
    )


def _test_against(label: str, collection: Collection) -> Collection:
    labels = {entry.label for study in collection.studies for entry in study.entries}
    if label not in labels | {published.REFERENCE}:
        raise InputError(f"no method {label!r} to test against; the runs are of {', '.join(sorted(labels))}.")
    return replace(collection, studies=[replace(study, against=label) for study in collection.studies])


def _prefix(item: Item, prefix: str) -> Item:
    return replace(item, name=prefix + item.name) if isinstance(item, Sheet | Illustration) else item


def _write_item(item: Item, output: Path) -> None:
    if isinstance(item, Sheet):
        (output / "tables" / f"{item.name}.csv").write_text(to_csv(item), encoding="utf-8")
        (output / "tables" / f"{item.name}.tex").write_text(to_latex(item), encoding="utf-8")
    elif isinstance(item, Illustration):
        item.figure.savefig(output / "figures" / f"{item.name}.png", dpi=150)
        item.figure.savefig(output / "figures" / f"{item.name}.svg", dpi=150)


def _to_markdown(collection: Collection, sections: list[Section]) -> str:
    lines = ["# Comparison of neural operators", *describe_results(collection)]
    if text := describe_protocols(collection):
        lines.append(text)
    for section in sections:
        lines.append(f"## {section.title}")
        for item in section.items:
            if isinstance(item, Sheet):
                lines += [f"### {item.title}", to_markdown(item).strip(), item.note]
            elif isinstance(item, Illustration):
                lines += [f"### {item.title}", f"![{item.alternative}](figures/{item.name}.png)", item.caption]
            else:
                lines.append(f"*{item.text}*")
    for title, names in _list_troubles(collection).items():
        lines += [f"## {title}", "\n".join(f"- {name}" for name in names)]
    return "\n\n".join(lines) + "\n"


def _to_html(collection: Collection, sections: list[Section], output: Path) -> str:
    return read_template("report.html.j2").render(
        results=describe_results(collection),
        protocols=describe_protocols(collection),
        sections=[(section.title, [_embed(item, output) for item in section.items]) for section in sections],
        troubles=_list_troubles(collection),
    )


def _embed(item: Item, output: Path) -> tuple[str, Item | Picture]:
    """An item with its kind; a figure with its PNG."""
    if not isinstance(item, Illustration):
        return item.kind, item
    data = b64encode((output / "figures" / f"{item.name}.png").read_bytes()).decode()
    return item.kind, Picture(item.title, item.alternative, item.caption, data)


def _list_troubles(collection: Collection) -> dict[str, list[str]]:
    troubles = {"Runs without a result": collection.failed, "Left out": collection.left_out}
    return {title: names for title, names in troubles.items() if names}
