"""Readers of text: their time grows linearly with the input, and nesting is bounded."""

import contextlib
import time
from collections.abc import Callable

import pytest

from penstock import units
from penstock.cluster.topology import nvidia_smi
from penstock.cluster.topology.nccl import xml
from penstock.cluster.topology.slurm import conf, hostlist, plain_yaml, yaml
from penstock.emulation import faults
from penstock.errors import InputError
from penstock.program import actions
from penstock.units import parse_bytes

SIZE = 48_000
QUICK_S = 0.1
"""A linear reader needs a few milliseconds for `SIZE` characters; a quadratic one a second or more."""
FACTOR, MAX_GROWTH = 4, 8
"""A linear reader takes 4 times as long for 4 times the text, a quadratic one 16 times."""


def seconds(read: Callable[[str], object], text: str) -> float:
    """Processor time to read or refuse a text."""
    start = time.process_time()
    with contextlib.suppress(InputError, ValueError):
        read(text)
    return time.process_time() - start


def grows_too_fast(read: Callable[[str], object], start: str, filler: str) -> bool:
    def text(size: int) -> str:
        return start + filler * (size // len(filler))

    if seconds(read, text(SIZE)) < QUICK_S:
        return False
    small, large = (min(seconds(read, text(size)) for _ in range(3)) for size in (SIZE // FACTOR, SIZE))
    return large > MAX_GROWTH * small


FILLERS = [
    "\n",
    " ",
    "\t",
    " \n",
    "a",
    "a\n",
    "=",
    "a=",
    "a =\n",
    "'",
    "''",
    "' ",
    '"',
    "[",
    "[]",
    "-",
    "- ",
    "-\n",
    "#",
    " #",
    "1",
    "1.",
    "1e",
    ".",
    ",",
    "a,",
    "[1-2],",
    "<!---->",
    "<!-- ",
    "<?xml>",
    "<",
    ">",
    "topology",
    " topology",
    "SwitchName",
    "SwitchName ",
    "\x1b[",
    "\x1b[0",
    "NV1 ",
    "0F0",
    "0:",
    "A_",
    "0F",
    "\x0b",
    "\u2028",
]
STARTS = ["", "- ", "SwitchName=", "x", "1", "0", "<", "<!--", "a: '", 'a: "', "a: [", "\tGPU0", "node1 -- "]

READERS: dict[str, Callable[[str], object]] = {
    "slurm yaml": yaml.looks_like_slurm_yaml,
    "slurm conf": conf.looks_like_slurm,
    "slurm words": lambda text: conf._words(text, ""),
    "hostlist": lambda text: hostlist.expand(text, where=""),
    "plain yaml": lambda text: plain_yaml.parse_yaml(text, where=""),
    "nccl": xml._START.match,
    "nvidia-smi colours": lambda text: nvidia_smi._COLOURS.sub("", text),
    "fault factor": faults._FACTOR.match,
    "units": units._NUMBER.match,
    "action": actions._PATTERN.match,
}


@pytest.mark.parametrize("reader", READERS)
def test_reading_is_linear(reader: str) -> None:
    slow = [(start, filler) for start in STARTS for filler in FILLERS if grows_too_fast(READERS[reader], start, filler)]
    assert not slow


def test_a_quadratic_reader_is_found() -> None:
    def read(text: str) -> int:
        return sum(character == "b" for start in range(0, len(text), 100) for character in text[start:])

    assert grows_too_fast(read, "", "a")


@pytest.mark.parametrize("text", ["a: " + "[" * 50_000 + "]" * 50_000, "- " * 50_000 + "a", "'" * 50_001])
def test_nesting_is_bounded(text: str) -> None:
    with pytest.raises(InputError):
        plain_yaml.parse_yaml(text, where="topology.yaml")


def test_long_quantities_are_refused() -> None:
    with pytest.raises(InputError, match="is not a quantity"):
        parse_bytes("1" * 100)
