"""The architecture as one table: which package may import which, and that outsiders import only faces."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.paths import SOURCE

MAY_IMPORT = {
    "profile": "",
    "profile/analytic": "profile/spread",
    "profile/readers": "profile/spread",
    "profile/analytic/architectures": "profile/analytic/blocks",
    "profile/analytic/architectures/experts": "profile/analytic/architectures/decoders",
    "cluster": "profile",
    "cluster/toml": "cluster/declaration",
    "cluster/topology": "cluster/toml",
    "plan": "cluster profile",
    "program": "plan",
    "program/engine": "program/dependencies",
    "program/lowering": "program/dependencies program/engine",
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
    "planners/auto/folding": "planners/costs",
    "planners/studies": "planners/auto planners/bounds planners/methods/spp",
    "report": "cluster plan planners profile program simulate timeline",
    "report/text": "report/analysis",
    "report/terminal": "report/analysis",
    "report/trace": "report/analysis",
    "report/html": "report/analysis report/text",
    "calibration": "cluster plan profile simulate",
    "adaptation": "cluster plan planners profile program simulate timeline",
    "export": "cluster plan planners profile program schedules simulate timeline",
    "export/imports": "export/engines",
    "bundle": "cluster plan profile program schedules timeline",
    "device": "profile",
    "model": "device",
    "model/block_forward": "model/tracing",
    "dist": "",
    "probe": "cluster device dist profile",
    "runtime": "cluster device dist model plan profile program schedules timeline",
    "runtime/health": "runtime/tensors",
    "runtime/layout": "runtime/tensors",
    "runtime/transport": "runtime/tensors",
    "runtime/stage": "runtime/health runtime/tensors runtime/transport",
    "runtime/precision": "",
    "runtime/sharding": "runtime/tensors runtime/transport",
    "runtime/state": "runtime/layout runtime/precision runtime/sharding runtime/tensors",
    "runtime/state/copies": "runtime/state/checkpoints",
    "runtime/remote_backward": "runtime/stage runtime/tensors",
    "runtime/loss": "runtime/stage runtime/tensors",
    "runtime/executor": "runtime/health runtime/layout runtime/loss runtime/remote_backward runtime/sharding "
    "runtime/stage runtime/tensors runtime/transport",
    "runtime/verify": "runtime/tensors",
    "runtime/checks": "runtime/executor runtime/layout runtime/state runtime/tensors runtime/transport",
    "runtime/assembly": "runtime/checks runtime/executor runtime/health runtime/layout runtime/loss "
    "runtime/precision runtime/remote_backward runtime/sharding runtime/stage runtime/state runtime/transport",
    "profiler": "device dist model plan profile runtime",
    "emulation": "cluster dist plan profile program runtime simulate timeline",
    "launch": "adaptation bundle cluster device dist emulation model plan planners profile profiler program report "
    "runtime simulate timeline",
    "launch/elastic": "launch/runs",
    "launch/ranks": "launch/runs",
    "launch/scenarios": "launch/ranks launch/runs",
    "cli": "adaptation bundle calibration cluster dist emulation export launch plan planners probe profile profiler "
    "program report schedules simulate timeline",
    "cli/workflows": "cli/options cli/render",
    "cli/commands": "cli/options cli/render cli/workflows",
    "cli/commands/cluster": "cli/options cli/render",
}
"""What each package may import beside its own modules, those of its parents, and its own sub-packages.

A name covers all packages below it, and a sub-package may also import what its parents may.
"""
TORCH = (
    "device",
    "model",
    "probe",
    "runtime",
    "profiler",
    "emulation/rank",
    "export/templates",
    "launch/selftest/models",
)
"""Packages and folders that need torch. Nothing else loads it at import."""
HEAVY = {"torch", "numba", "rich", "click"}
ENTRY_POINTS = ("cli/main", "cli/commands", "launch/ranks")
"""Modules that are started or loaded by name, so they stand behind no face."""
ACCELERATOR_TYPES = {"cuda", "hip", "rocm", "xpu"}
"""Only `device/` names these, in code or messages. Docstrings and help texts may."""
MAX_MODULES = 14
LAUNCHER = ("dist/launcher.py", "dist/template.py")
STARTS_PROCESSES = {
    "subprocess": {"Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {"fork", "forkpty", "popen", "posix_spawn", "posix_spawnp", "system"}
    | {f"{kind}{how}" for kind in ("exec", "spawn") for how in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")},
    "pty": {"fork", "spawn"},
}
"""Functions that start a process, by module. Only the launcher and the template of its ranks call them."""
PROCESS_LIBRARIES = {"multiprocessing", "concurrent.futures.process", "torch.multiprocessing"}
RUNS_TOOLS = {"emulation/network/namespaces.py"}
"""Modules that may call `subprocess.run`, which returns when the program has ended: for `ip` and `tc`."""


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
    assert {name: size for name, size in sizes.items() if size > MAX_MODULES} == {}


def _top_imports(path: Path) -> set[str]:
    """What is imported when a module is loaded, not when a function of it is called."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_only_one_package_names_types_of_accelerators() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        if path.parent in (SOURCE / "device", SOURCE / "export" / "templates"):  # templates set options of engines
            continue
        tree = ast.parse(path.read_text())
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        # Help texts of options name examples.
        helps = [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "help"]
        prose |= {id(part) for text in helps for part in ast.walk(text)}
        for node in ast.walk(tree):
            names = [getattr(node, field, None) for field in ("attr", "id", "arg", "name")]
            text = [node.value] if isinstance(node, ast.Constant) and id(node) not in prose else []
            words = re.split(r"[^a-z]+", " ".join(str(item) for item in (*names, *text) if item).lower())
            if ACCELERATOR_TYPES & set(words):
                wrong.append(f"{path.relative_to(SOURCE)}, line {getattr(node, 'lineno', '?')}")
    assert wrong == []


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


def _process_starts(path: Path) -> Iterator[str]:
    """The names in a module that start processes, however they are imported."""
    names = dict(STARTS_PROCESSES)
    if path.relative_to(SOURCE).as_posix() not in RUNS_TOOLS:
        names["subprocess"] = names["subprocess"] | {"run"}
    tree = ast.parse(path.read_text())
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
            yield from (alias.name for alias in node.names if alias.name in PROCESS_LIBRARIES)
        elif isinstance(node, ast.ImportFrom):
            imported = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from sorted({str(node.module), *imported} & PROCESS_LIBRARIES)
            yield from (alias.name for alias in node.names if alias.name in names.get(str(node.module), ()))
            if any(alias.name == "ProcessPoolExecutor" for alias in node.names):
                yield "ProcessPoolExecutor"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "ProcessPoolExecutor":
            yield node.attr
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id, "")
            if node.attr in names.get(module, ()):
                yield f"{module}.{node.attr}"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import subprocess as s\ns.Popen([])", ["subprocess.Popen"]),
        ("import subprocess\nx: subprocess.Popen[bytes]\nsubprocess.run([])", ["subprocess.Popen", "subprocess.run"]),
        ("from subprocess import DEVNULL, run", ["run"]),
        ("import os\nos.fork()\nos.forget()", ["os.fork"]),
        ("from os import posix_spawn", ["posix_spawn"]),
        ("def f():\n    import multiprocessing", ["multiprocessing"]),
        ("from torch import multiprocessing", ["torch.multiprocessing"]),
        ("from concurrent.futures import ProcessPoolExecutor", ["ProcessPoolExecutor"]),
        ("import subprocess\nsubprocess.DEVNULL", []),
    ],
)
def test_starts_of_processes_are_found(
    code: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    (tmp_path / "module.py").write_text(code)
    assert list(_process_starts(tmp_path / "module.py")) == names


def test_only_the_launcher_starts_processes() -> None:
    starts = {path.relative_to(SOURCE).as_posix(): list(_process_starts(path)) for path in SOURCE.rglob("*.py")}
    launcher, template = map(starts.pop, LAUNCHER)
    assert {"subprocess.Popen", "os.fork"} <= set(launcher)
    assert set(template) == {"os.fork"}
    assert {path: names for path, names in starts.items() if names} == {}


def test_the_launcher_does_not_load_torch() -> None:
    code = "import sys, penstock.dist; print([name for name in ('torch', 'numba', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
