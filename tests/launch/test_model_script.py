"""Errors of a script name its line; errors of Penstock are not blamed on it."""

import json
from functools import partial

import pytest

from penstock.errors import InputError, ModelLocation
from penstock.launch.model_script import run_in_script


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
