"""The architecture as one table: which package may import which, and that outsiders import only faces."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import SOURCE

MAY_IMPORT = {
    "profile": "",
    "cluster": "profile",
    "cluster/toml": "cluster/declaration",
    "cluster/topology": "cluster/toml",
    "plan": "cluster profile",
    "program": "plan",
    "program/engine": "program/dependencies",
    "program/lowering": "program/dependencies",
    "program/proof": "program/dependencies program/engine",
    "schedules": "plan program",
    "schedules/methods": "schedules/ordering schedules/search",
    "timeline": "plan program",
    "simulate": "cluster plan profile program schedules timeline",
    "planners": "cluster plan profile program schedules simulate timeline",
    "planners/exact": "planners/bounds",
    "planners/methods": "planners/costs",
    "planners/methods/dapple": "planners/methods/pipedream",
    "planners/auto": "planners/bounds planners/exact planners/methods",
    "planners/studies": "planners/auto planners/bounds planners/methods/spp",
    "report": "cluster plan planners profile program simulate timeline",
    "report/text": "report/analysis",
    "report/terminal": "report/analysis",
    "report/trace": "report/analysis",
    "report/html": "report/analysis report/text",
    "bundle": "cluster plan profile program schedules timeline",
    "model": "",
    "dist": "",
    "probe": "cluster dist model",
    "runtime": "cluster dist model plan profile program schedules timeline",
    "runtime/health": "runtime/tensors",
    "runtime/layout": "runtime/tensors",
    "runtime/transport": "runtime/tensors",
    "runtime/stage": "runtime/health runtime/tensors runtime/transport",
    "runtime/state": "runtime/layout",
    "runtime/remote_backward": "runtime/stage runtime/tensors",
    "runtime/executor": "runtime/health runtime/layout runtime/remote_backward runtime/stage runtime/tensors "
    "runtime/transport",
    "runtime/verify": "runtime/tensors",
    "runtime/checks": "runtime/executor runtime/layout runtime/state runtime/tensors runtime/transport",
    "profiler": "dist model plan profile runtime",
    "emulation": "cluster dist plan profile program runtime simulate timeline",
    "launch": "bundle cluster dist emulation model plan profile profiler report runtime simulate timeline",
    "launch/ranks": "launch/processes",
    "cli": "bundle cluster emulation launch plan planners probe profile profiler program report schedules simulate "
    "timeline",
    "cli/workflows": "cli/options cli/render",
    "cli/commands": "cli/options cli/render cli/workflows",
}
"""What each package may import beside its own modules, those of its parents, and its own sub-packages.

A name covers all packages below it, and a sub-package may also import what its parents may.
"""
TORCH = ("model", "dist", "probe", "runtime", "profiler", "emulation/rank")
"""Packages that need torch. Nothing else loads it at import."""
HEAVY = {"torch", "numba", "rich", "click"}
ENTRY_POINTS = ("cli/main", "cli/commands", "launch/ranks")
"""Modules that are started or loaded by name, so they stand behind no face."""
MOST_MODULES = 14


class Import(NamedTuple):
    """One import of a module of ours: where it is written, and what it names."""

    path: Path
    package: str
    target: str
    is_package: bool

    @property
    def target_package(self) -> str:
        return self.target if self.is_package else self.target.rpartition("/")[0]


def _packages() -> list[str]:
    return sorted(path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.glob("*/**/__init__.py"))


def _imports() -> Iterator[Import]:
    for path in SOURCE.rglob("*.py"):
        package = path.parent.relative_to(SOURCE).as_posix().removeprefix(".")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock."):
                target = str(node.module).removeprefix("penstock.").replace(".", "/")
                yield Import(path, package, target, (SOURCE / target).is_dir())


def _is_in(package: str, parent: str) -> bool:
    return package == parent or package.startswith(f"{parent}/")


def _parents(package: str) -> list[str]:
    words = package.split("/")
    return ["/".join(words[:number]) for number in range(1, len(words) + 1)]


def _may_import(package: str, target: str) -> bool:
    if not package or not target or _is_in(package, target) or _is_in(target, package):
        return True
    allowed = [name for parent in _parents(package) for name in MAY_IMPORT.get(parent, "").split()]
    return any(_is_in(target, name) for name in allowed)


def test_the_table_names_packages_that_exist_and_has_no_circle() -> None:
    packages = set(_packages())
    assert {name for name in packages if "/" not in name} <= set(MAY_IMPORT)
    assert set(MAY_IMPORT) | {name for text in MAY_IMPORT.values() for name in text.split()} <= packages
    done: set[str] = set()
    while rest := [name for name in MAY_IMPORT if name not in done]:
        ready = [
            name for name in rest if all(other in done or other not in MAY_IMPORT for other in MAY_IMPORT[name].split())
        ]
        assert ready, f"these import each other: {rest}"
        done |= set(ready)


def test_packages_import_only_what_the_table_allows() -> None:
    wrong = [
        f"{item.path.relative_to(SOURCE)} imports {item.target}"
        for item in _imports()
        if not _may_import(item.package, item.target_package)
    ]
    assert wrong == []


def test_the_table_allows_nothing_that_is_not_used() -> None:
    used = {(item.package, item.target_package) for item in _imports()}
    unused = [
        f"{package}: {name}"
        for package, text in MAY_IMPORT.items()
        for name in text.split()
        if not any(_is_in(one, package) and _is_in(other, name) for one, other in used)
    ]
    assert unused == []


def test_outsiders_import_faces() -> None:
    wrong = []
    for item in _imports():
        outside = item.package != item.target_package and not _is_in(item.package, item.target_package)
        if item.is_package or not item.target_package or not outside or item.target.endswith("_kernel"):
            continue
        if not item.target.startswith(ENTRY_POINTS) and item.path.parent != SOURCE:
            wrong.append(f"{item.path.relative_to(SOURCE)} imports the module {item.target}")
    assert wrong == []


def test_faces_list_their_names() -> None:
    for package in _packages():
        tree = ast.parse((SOURCE / package / "__init__.py").read_text())
        names = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
        listed = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
        assert names == set(listed[0] if listed else ()), package
        assert ast.get_docstring(tree), package


def test_folders_stay_small() -> None:
    folders = {path.parent for pattern in ("*.py", "*.mjs") for path in SOURCE.rglob(pattern)}
    sizes = {
        folder.relative_to(SOURCE).as_posix(): len(
            [path for path in folder.iterdir() if path.suffix in (".py", ".mjs") and path.name != "__init__.py"]
        )
        for folder in folders
    }
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES} == {}


def _top_imports(path: Path) -> set[str]:
    """What is imported when a module is loaded, not when a function of it is called."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_heavy_libraries_are_loaded_late() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        package = path.parent.relative_to(SOURCE).as_posix()
        heavy = _top_imports(path) & HEAVY
        if path.name.endswith("_kernel.py") or path.name == "kernel.py":
            heavy -= {"numba"}
        if _is_in(package, "cli"):
            heavy -= {"click", "rich"}
        if _is_in(package, "report/terminal"):
            heavy -= {"rich"}
        if any(_is_in(package, name) for name in TORCH):
            heavy -= {"torch"}
        if heavy:
            wrong.append(f"{path.relative_to(SOURCE)}: {sorted(heavy)}")
    assert wrong == []
