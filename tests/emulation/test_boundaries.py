"""Emulation uses the runtime through its public interfaces only."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from tests.support.paths import SOURCE

EMULATION = SOURCE / "emulation"


def parsed_files() -> Iterator[tuple[Path, ast.Module]]:
    paths = sorted(EMULATION.rglob("*.py"))
    assert len(paths) > 15
    for path in paths:
        yield path, ast.parse(path.read_text())


def names_from_runtime(tree: ast.Module) -> dict[str, object]:
    """By local name: everything that a module imports from penstock.runtime."""
    names: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("penstock.runtime"):
            module = import_module(str(node.module))
            names |= {item.asname or item.name: getattr(module, item.name) for item in node.names}
    return names


def subclasses_of_runtime(tree: ast.Module) -> list[str]:
    """Names of classes whose base is a class of the runtime and not a protocol."""
    names = names_from_runtime(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = {item.id for base in node.bases for item in ast.walk(base) if isinstance(item, ast.Name)}
            if any(base in names and not getattr(names[base], "_is_protocol", False) for base in bases):
                found.append(node.name)
    return found


def foreign_private_names(tree: ast.Module) -> list[str]:
    """Private attributes of anything but self and cls; namedtuple's `_replace` and os's `_exit` are public."""
    return [
        f"{ast.unparse(node)} in line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        and ast.unparse(node) != "os._exit"
        and node.attr != "_replace"
    ]


def test_nothing_subclasses_a_class_of_the_runtime() -> None:
    assert {
        path.name: subclasses_of_runtime(tree) for path, tree in parsed_files() if subclasses_of_runtime(tree)
    } == {}


def test_nothing_touches_private_fields_of_other_objects() -> None:
    assert {
        path.name: foreign_private_names(tree) for path, tree in parsed_files() if foreign_private_names(tree)
    } == {}


def test_the_checks_notice_violations() -> None:
    code = """
from penstock.runtime.executor import Executor, StageRunner
class Derived(Executor): pass
class Implements(StageRunner): pass
def read(executor): return executor._jobs
"""
    tree = ast.parse(
        code.replace("Executor, StageRunner", "Executor")
        + "from penstock.runtime.executor.protocols import StageRunner"
    )
    assert subclasses_of_runtime(tree) == ["Derived"]
    assert foreign_private_names(tree) == ["executor._jobs in line 5"]
