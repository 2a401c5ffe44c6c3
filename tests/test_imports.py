"""Imports go one way, as docs/architecture.md draws it."""

import ast
from pathlib import Path

import svdno

ROOT = Path(svdno.__file__).parent

# Each room may import those listed, itself, and the leaves.
LEAVES = {"errors", "files", "grid", "lookup", "recipe", "__init__"}
ALLOWED = {
    "errors": set(),
    "files": set(),
    "grid": {"errors"},
    "lookup": {"errors"},
    "recipe": {"errors"},
    "environment": {"errors", "__init__"},
    "solvers": LEAVES,
    "equations": LEAVES | {"solvers"},
    "data": LEAVES | {"equations"},
    "models": LEAVES,
    "training": LEAVES | {"models", "data"},
    "evaluation": LEAVES | {"training", "models", "data"},
    "report": LEAVES,
    "run": LEAVES | {"environment", "evaluation", "training", "models", "data"},
    "inference": LEAVES | {"training", "data"},
    "console": LEAVES | {"report", "training", "benchmark", "tuning"},
    "demo": LEAVES | {"run", "console", "report"},
    "benchmark": LEAVES | {"run", "environment", "equations", "data"},
    "tuning": LEAVES | {"run", "environment", "training", "models", "data"},
    "cli": LEAVES
    | {"benchmark", "tuning", "demo", "run", "inference", "console", "report", "environment", "training", "data"},
    "__main__": {"cli"},
}


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "svdno":
            found.add(room(node.module))
        if isinstance(node, ast.Import):
            found |= {room(alias.name) for alias in node.names if alias.name.split(".")[0] == "svdno"}
    return found


def test_imports_follow_the_flow():
    for path in ROOT.rglob("*.py"):
        relative = path.relative_to(ROOT)
        here = relative.parts[0].removesuffix(".py")
        if relative == Path("__init__.py"):
            continue  # lazy: names its homes, imports nothing
        forbidden = imported_rooms(path) - ALLOWED[here] - {here}
        assert not forbidden, f"{relative} must not import {sorted(forbidden)}"


def test_public_names_exist():
    for name in svdno.__all__:
        assert getattr(svdno, name)
