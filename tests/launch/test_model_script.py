"""Whose mistake it is when a script fails: the one who wrote it is sent to the line, and ours is not blamed on them."""

import json
from functools import partial

import pytest

from penstock.errors import InputError
from penstock.launch.model_script import run_in_script


def theirs() -> None:
    raise ValueError("no more data")


def test_mistakes_of_the_script_are_input_errors() -> None:
    with pytest.raises(InputError, match="ValueError: no more data") as caught:
        run_in_script(__file__, theirs)
    assert f"{__file__}, line " in str(caught.value)


def test_what_no_line_of_theirs_had_a_part_in_stays_what_it_is() -> None:
    with pytest.raises(json.JSONDecodeError):
        run_in_script("their.py", partial(json.loads, "{"))


def test_a_block_of_torchs_that_fails_is_theirs() -> None:
    """It may be a plain layer of torch in a model of theirs: no line of the script is on the way."""

    def fail(*_: object, **__: object) -> None:
        error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
        error.add_note("In the forward of unit 3 (layers.2), step 0.")
        raise error

    with pytest.raises(InputError, match="In the forward of unit 3"):
        run_in_script("their.py", fail)


def test_lack_of_memory_is_no_mistake_of_the_script() -> None:
    def fill() -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")

    with pytest.raises(MemoryError, match="allocate"):
        run_in_script(__file__, fill)
