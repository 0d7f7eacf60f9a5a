"""A model from a user's own script: `script.py:make_model`."""

import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from penstock.cluster import near_names
from penstock.errors import FileError, InputError, PenstockError

_WANTED = "It returns (model, inputs, loss), or with targets behind, or an object that has these."
_MODULE = "penstock_model_script"
_IN_THEIR_MODEL = ("In the forward of unit", "In the loss")
"""How `runtime/stage/stage.py` says where a model failed; no line of the script need be on the way there."""
DEFAULT_FUNCTION = "make_model"


class Given(NamedTuple):
    """What a script's function returned."""

    model: Any
    inputs: Any
    loss: Callable[..., Any]
    targets: Any = None


def is_script(source: str | None) -> bool:
    """Whether a source names a function of a Python script.

    >>> is_script("train.py:make_model"), is_script("train.py"), is_script("gpt2")
    (True, True, False)
    """
    return source is not None and (source.endswith(".py") or ".py:" in source)


def script_path(source: str) -> str:
    """The file of the script."""
    return source if source.endswith(".py") else source.rpartition(":")[0]


class Script(NamedTuple):
    """A script that was run, and the function of it that makes the model."""

    path: str
    module: Any
    function: str

    def make_model(self) -> Given:
        """Call its function."""
        make = self.find(self.function)
        if make is None:
            own = [name for name, item in vars(self.module).items() if isinstance(item, FunctionType)]
            hint = f"{near_names(self.function, own)} {_WANTED}" if own else f"Define it. {_WANTED}"
            raise InputError(f"there is no function {self.function!r}", where=self.path, hint=hint)
        return _given(run_in_script(self.path, make), f"{self.path}:{self.function}")

    def find(self, name: str) -> Callable[..., Any] | None:
        """A function of the script, if it is there."""
        found = getattr(self.module, name, None)
        return found if callable(found) else None


def load_model(source: str) -> Given:
    """Run the script and call its function, which is make_model if none is named.

    What goes wrong there is told with the line of the script.
    """
    return load_script(source).make_model()


def script_function(source: str) -> str:
    """The function that the source names, if it does."""
    return "" if source.endswith(".py") else source.rpartition(":")[2]


def load_script(source: str) -> Script:
    """Run the script. If the source names no function, it is make_model."""
    path = script_path(source)
    check_script(source)
    return Script(path, run_in_script(path, lambda: _run(path)), script_function(source) or DEFAULT_FUNCTION)


def check_script(source: str) -> None:
    """Refuse what is no script, before it is run."""
    if not is_script(source):
        raise InputError("this is not a Python script", where=source, hint="Write script.py, or script.py:make_model.")
    if not Path(script_path(source)).is_file():
        raise FileError("no such file", where=script_path(source), hint="Check the path.")


def run_in_script(path: str, call: Callable[[], Any]) -> Any:
    """Call something that the script wrote; its failures become errors that name the script's line."""
    try:
        return call()
    except (PenstockError, KeyboardInterrupt, MemoryError):
        raise
    except SystemExit as error:
        raise InputError(
            f"the script ended itself (exit code {error.code})",
            where=path,
            hint="Put what is only for running it as a program under: if __name__ == '__main__'.",
        ) from None
    except BaseException as error:
        if _is_lack_of_memory(error):
            raise MemoryError(str(error)) from error
        places = [note for note in getattr(error, "__notes__", ()) if note.startswith(_IN_THEIR_MODEL)]
        if not places and not _is_theirs(error):
            raise
        hint = "\n  ".join([*places, "Mend the script."])
        raise InputError(f"{type(error).__name__}: {error}", where=_place(path, error), hint=hint) from error


def _is_lack_of_memory(error: BaseException) -> bool:
    """For want of memory torch raises an error of its own on a GPU, and a plain one on a processor."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


def _is_theirs(error: BaseException) -> bool:
    """Whether it went through code that is neither ours nor a library's, or what is in the script is no Python."""
    known = sysconfig.get_paths()
    others = [Path(known[name]).resolve() for name in ("stdlib", "purelib", "platlib")]
    others.append(Path(__file__).resolve().parents[1])
    names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    files = [Path(name).resolve() for name in names if not name.startswith("<frozen ")]
    return isinstance(error, SyntaxError) or not all(any(map(file.is_relative_to, others)) for file in files)


def _run(path: str) -> Any:
    # As when Python runs it: what lies beside it can be imported.
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    assert spec is not None  # a .py file always has one, and a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # dataclasses and pickle look there
    spec.loader.exec_module(module)
    return module


def _place(path: str, error: BaseException) -> str:
    """The last line of the script on the way to where it failed."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{path}, line {error.lineno}"
    here = Path(path).resolve()
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).resolve() == here
    ]
    return f"{path}, line {lines[-1]}" if lines else path


def _given(result: Any, where: str) -> Given:
    if isinstance(result, tuple | list) and len(result) in (3, 4):
        given = Given(*result)
    elif isinstance(result, dict) and {"model", "inputs", "loss"} <= result.keys():
        given = Given(result["model"], result["inputs"], result["loss"], result.get("targets"))
    elif all(hasattr(result, name) for name in ("model", "inputs", "loss")):
        given = Given(result.model, result.inputs, result.loss, getattr(result, "targets", None))
    else:
        kind = type(result).__name__
        result_type = f"{len(result)} things" if isinstance(result, tuple | list) else f"something of type {kind}"
        raise InputError(f"the function returned {result_type}", where=where, hint=_WANTED)
    from torch import nn

    if not isinstance(given.model, nn.Module):
        raise InputError(f"the model is a {type(given.model).__name__}, not an nn.Module", where=where, hint=_WANTED)
    if not callable(given.loss):
        raise InputError(f"the loss is a {type(given.loss).__name__} and cannot be called", where=where, hint=_WANTED)
    return given
