"""Models of a user's own script: `script.py:make_model`."""

import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from penstock.errors import FileError, InputError, ModelLocation, PenstockError
from penstock.names import ask_names, suggest_files, suggest_names

_EXPECTED = (
    "It must return (model, inputs), (model, inputs, loss) or (model, inputs, loss, targets), or an object with these "
    "attributes. Without a loss, the model must compute its own."
)
_MODULE = "penstock_model_script"
DEFAULT_FUNCTION = "make_model"


class ModelSpec(NamedTuple):
    """A model, a sample batch and a loss, as a script's function returns them."""

    model: Any
    inputs: Any
    loss: Callable[..., Any] | None = None
    """None: the model computes its own."""
    targets: Any = None


def is_script(source: str | None) -> bool:
    """Whether a source names a Python script, with or without a function.

    >>> is_script("train.py:make_model"), is_script("train.py"), is_script("gpt2")
    (True, True, False)
    """
    return source is not None and (source.endswith(".py") or ".py:" in source)


def script_path(source: str) -> str:
    """The file of a script."""
    return source if source.endswith(".py") else source.rpartition(":")[0]


class Script(NamedTuple):
    """A script that has been run, and the name of the function that makes the model."""

    path: str
    module: Any
    function: str

    def make_model(self) -> ModelSpec:
        """Call the function that makes the model."""
        make = self.find(self.function)
        if make is None:
            names = [name for name, item in vars(self.module).items() if isinstance(item, FunctionType)]
            hint = f"{suggest_names(self.function, names)} {_EXPECTED}" if names else f"Define it. {_EXPECTED}"
            raise InputError(f"the script has no function {self.function!r}", where=self.path, hint=hint)
        return _model_spec(run_in_script(self.path, make), f"{self.path}:{self.function}")

    def find(self, name: str) -> Callable[..., Any] | None:
        """A function of the script, or None if it is not defined."""
        function = getattr(self.module, name, None)
        return function if callable(function) else None


def load_model(source: str, device: str | None = None) -> ModelSpec:
    """Run a script and call its function.

    Args:
        source: The script, as `script.py` or `script.py:function`. The default function is `make_model`.
        device: Move model and sample batch to this device; None leaves them where they are.

    Raises:
        InputError: If the script fails; the error names the line of the script.
    """
    spec = load_script(source).make_model()
    if device is None:
        return spec
    from penstock.device import select_device
    from penstock.model import map_tensors, move_model

    chosen = select_device(device)
    move_model(spec.model, chosen)
    inputs, targets = (map_tensors(lambda leaf: leaf.to(chosen), item) for item in (spec.inputs, spec.targets))
    return spec._replace(inputs=inputs, targets=targets)


def script_function(source: str) -> str:
    """The function that the source names, or an empty string."""
    return "" if source.endswith(".py") else source.rpartition(":")[2]


def load_script(source: str) -> Script:
    """Run a script. The default function is `make_model`."""
    path = script_path(source)
    check_script(source)
    return Script(path, run_in_script(path, lambda: _run(path)), script_function(source) or DEFAULT_FUNCTION)


def check_script(source: str) -> None:
    """Refuse a source that is not a Python script, without running it."""
    if not is_script(source):
        raise InputError("this is not a Python script", where=source, hint="Write script.py, or script.py:make_model.")
    if not Path(script_path(source)).is_file():
        path = script_path(source)
        raise FileError("no such file", where=path, hint=ask_names(suggest_files(path)) or "Check the path.")


def run_in_script(path: str, call: Callable[[], Any]) -> Any:
    """Call code of the script. Its exceptions become errors that name the script's line."""
    try:
        return call()
    except (PenstockError, KeyboardInterrupt, MemoryError):
        raise
    except SystemExit as error:
        raise InputError(
            f"the script called sys.exit (exit code {error.code})",
            where=path,
            hint="Put code that runs the script as a program under: if __name__ == '__main__'.",
        ) from None
    except BaseException as error:
        if _is_out_of_memory(error):
            raise MemoryError(str(error)) from error
        locations = [note for note in getattr(error, "__notes__", ()) if isinstance(note, ModelLocation)]
        if not locations and not _is_from_script(error):
            raise
        hint = "\n  ".join([*locations, "Fix the script."])
        raise InputError(f"{type(error).__name__}: {error}", where=_location(path, error), hint=hint) from error


def _is_out_of_memory(error: BaseException) -> bool:
    """Torch raises an error type of its own on a GPU, and a plain RuntimeError on a CPU."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


def _is_from_script(error: BaseException) -> bool:
    """Whether the traceback has a file of neither Penstock nor a library, or the script is not valid Python."""
    known = sysconfig.get_paths()
    others = [Path(known[name]).resolve() for name in ("stdlib", "purelib", "platlib")]
    others.append(Path(__file__).resolve().parents[1])
    names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    files = [Path(name).resolve() for name in names if not name.startswith("<frozen ")]
    return isinstance(error, SyntaxError) or not all(any(map(file.is_relative_to, others)) for file in files)


def _run(path: str) -> Any:
    # As when Python runs it: modules beside the script can be imported.
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


def _location(path: str, error: BaseException) -> str:
    """The last line of the script in the traceback."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{path}, line {error.lineno}"
    here = Path(path).resolve()
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).resolve() == here
    ]
    return f"{path}, line {lines[-1]}" if lines else path


def _model_spec(result: Any, where: str) -> ModelSpec:
    if isinstance(result, tuple | list) and len(result) in (2, 3, 4):
        spec = ModelSpec(*result)
    elif isinstance(result, dict) and {"model", "inputs"} <= result.keys():
        spec = ModelSpec(result["model"], result["inputs"], result.get("loss"), result.get("targets"))
    elif all(hasattr(result, name) for name in ("model", "inputs")):
        spec = ModelSpec(result.model, result.inputs, getattr(result, "loss", None), getattr(result, "targets", None))
    else:
        kind = type(result).__name__
        returned = f"{len(result)} values" if isinstance(result, tuple | list) else f"an object of type {kind}"
        raise InputError(f"the function returned {returned}", where=where, hint=_EXPECTED)
    from torch import nn

    if not isinstance(spec.model, nn.Module):
        raise InputError(f"the model is a {type(spec.model).__name__}, not an nn.Module", where=where, hint=_EXPECTED)
    if spec.loss is not None and not callable(spec.loss):
        raise InputError(f"the loss is a {type(spec.loss).__name__} and is not callable", where=where, hint=_EXPECTED)
    if spec.loss is None and spec.targets is not None:
        raise InputError("there are targets, but no loss function", where=where, hint=_EXPECTED)
    from penstock.model import plain_inputs

    return spec._replace(inputs=plain_inputs(spec.inputs), targets=plain_inputs(spec.targets))
