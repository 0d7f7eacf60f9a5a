"""Dependencies point one way: a package imports only from those above it in docs/architecture.md."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "penstock"
LAYERS = [
    ("errors",),
    ("files", "quantities"),
    ("model",),
    ("profile",),
    ("cluster",),
    ("probe",),
    ("plan",),
    ("program",),
    ("schedules",),
    ("timeline",),
    ("simulate",),
    ("planners",),
    ("report",),
    ("runtime",),
    ("emulation",),
    ("cli",),
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
HEAVY = {"torch", "numba", "rich", "click"}
TORCH = (
    "model/",
    "probe/",
    "runtime/",
    "emulation/executor.py",
    "emulation/held_mail.py",
    "emulation/rank.py",
    "emulation/scratch.py",
    "emulation/sleeping.py",
)
"""What only torch users load."""


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _top_imports(path: Path) -> set[str]:
    """What is imported when a module is loaded, not when a function of it is called."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_every_package_is_in_a_layer() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == set(HEIGHT) - {"errors", "files", "quantities"}


def test_packages_import_only_what_is_above_them() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] not in HEIGHT:  # __init__ and warm stand above all
            continue
        for name in _imports(path):
            words = name.split(".")
            if words[0] == "penstock" and len(words) > 1 and words[1] in HEIGHT:
                same = words[1] == parts[0]
                if not same and HEIGHT[words[1]] >= HEIGHT[parts[0]]:
                    wrong.append(f"{'/'.join(parts)} imports {name}")
    assert wrong == []


def test_heavy_libraries_are_loaded_late() -> None:
    allowed = {
        "program/engine.py": {"numba"},
        "program/heap.py": {"numba"},
        "timeline/latest.py": {"numba"},
    }
    wrong = []
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        heavy = _top_imports(path) & HEAVY - allowed.get(name, set())
        if name.endswith("_kernel.py"):
            heavy -= {"numba"}
        if name.startswith("cli/"):
            heavy -= {"click", "rich"}
        if name.startswith("report/"):
            heavy -= {"rich"}
        if name.startswith(TORCH):
            heavy -= {"torch"}
        if heavy:
            wrong.append(f"{name}: {sorted(heavy)}")
    assert wrong == []
