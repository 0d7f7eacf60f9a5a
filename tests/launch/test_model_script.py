"""Errors of a script name its line; errors of Penstock are not blamed on it."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from penstock.errors import FileError, InputError, ModelLocation
from penstock.launch.model_script import (
    check_script,
    is_script,
    load_model,
    load_script,
    run_in_script,
    script_function,
    script_path,
)


def fail_in_script() -> None:
    raise ValueError("no more data")


def test_errors_of_the_script_are_input_errors() -> None:
    with pytest.raises(InputError, match="ValueError: no more data") as caught:
        run_in_script(__file__, fail_in_script)
    assert f"{__file__}, line " in str(caught.value)


def test_other_errors_are_raised_unchanged() -> None:
    with pytest.raises(json.JSONDecodeError):
        run_in_script("their.py", partial(json.loads, "{"))


def test_a_failing_layer_of_torch_is_an_error_of_the_script() -> None:
    """The traceback of a plain torch layer has no line of the script."""

    def fail(*_: object, **__: object) -> None:
        error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
        error.add_note(ModelLocation("In the forward of layer 3 (layers.2), step 0."))
        raise error

    with pytest.raises(InputError, match="In the forward of layer 3"):
        run_in_script("their.py", fail)


def test_running_out_of_memory_is_not_an_error_of_the_script() -> None:
    def fill() -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")

    with pytest.raises(MemoryError, match="allocate"):
        run_in_script(__file__, fill)


@pytest.mark.parametrize(
    ("source", "path", "function"),
    [("a.py", "a.py", ""), ("a.py:make", "a.py", "make"), ("x:/b.py", "x:/b.py", ""), ("x:/b.py:f", "x:/b.py", "f")],
)
def test_sources(source: str, path: str, function: str) -> None:
    assert is_script(source)
    assert (script_path(source), script_function(source)) == (path, function)


def test_sources_that_are_not_scripts(tmp_path: Path) -> None:
    assert not is_script(None)
    with pytest.raises(InputError, match="gpt2: this is not a Python script"):
        check_script("gpt2")
    missing = str(tmp_path / "none.py")
    with pytest.raises(FileError, match=r"none\.py: no such file"):
        check_script(f"{missing}:make")
    (tmp_path / "some.py").touch()
    check_script(str(tmp_path / "some.py"))


SCRIPT = """
import beside
from torch import nn
NUMBER = 3
def make_model():
    return nn.Linear(2, 2), [1], print
def with_targets():
    return [nn.Linear(2, 2), [1], print, [2]]
def as_dict():
    return {"model": nn.Linear(2, 2), "inputs": [1], "loss": print, "targets": [2]}
class Sample:
    model, inputs, loss = nn.Linear(2, 2), [1], print
def as_object():
    return Sample
def one_value():
    return (1,)
def a_number():
    return 3
def no_module():
    return 1, 2, print
def no_loss():
    return nn.Linear(2, 2), 2, 3
def ends():
    raise SystemExit(4)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside.py").touch()
    (tmp_path / "script.py").write_text(SCRIPT)
    return str(tmp_path / "script.py")


@pytest.mark.parametrize(
    ("function", "targets"),
    [("", None), (":make_model", None), (":with_targets", [2]), (":as_dict", [2]), (":as_object", None)],
)
def test_what_a_function_may_return(script: str, function: str, targets: list[int] | None) -> None:
    spec = load_model(f"{script}{function}")
    assert (type(spec.model).__name__, spec.inputs, spec.loss, spec.targets) == ("Linear", [1], print, targets)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("one_value", "script.py:one_value: the function returned 1 values"),
        ("a_number", "script.py:a_number: the function returned an object of type int"),
        ("no_module", "the model is a int, not an nn.Module"),
        ("no_loss", "the loss is a int and is not callable"),
        ("NUMBER", "the script has no function 'NUMBER'"),
        ("make_modell", "the script has no function 'make_modell'"),
        ("ends", r"the script called sys.exit \(exit code 4\)"),
    ],
)
def test_what_a_function_must_not_do(script: str, function: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model(f"{script}:{function}")


def test_functions_of_a_script(script: str) -> None:
    loaded = load_script(script)
    assert (loaded.path, loaded.function) == (script, "make_model")
    assert loaded.find("NUMBER") is None
    assert loaded.find("nothing") is None
    found = loaded.find("a_number")
    assert found is not None
    assert found() == 3


def test_the_line_of_the_script_is_named(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("import json\n\ndef make_model():\n    return json.loads('{')\n")
    with pytest.raises(InputError, match=r"wrong\.py, line 4: JSONDecodeError"):
        load_model(str(path))
    path.write_text("x = 1\ny = = 2\n")
    with pytest.raises(InputError, match=r"wrong\.py, line 2: SyntaxError"):
        load_model(str(path))
