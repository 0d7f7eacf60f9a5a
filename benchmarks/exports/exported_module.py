"""Loads a Python file of an export, as the scripts of its users do."""

import importlib.util
from pathlib import Path
from typing import Any


def load_exported(path: Path) -> Any:
    """Run the file as a module of its own and return it."""
    spec = importlib.util.spec_from_file_location(f"exported_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
