"""Slurm's host lists."""

import pytest

from penstock.cluster.topology.slurm.hostlist import expand
from penstock.errors import InputError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("node[01-03,20]", ["node01", "node02", "node03", "node20"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("r[1-2]n[01,03]-ib", ["r1n01-ib", "r1n03-ib", "r2n01-ib", "r2n03-ib"]),
        ("a,b[1-2],c", ["a", "b1", "b2", "c"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
    ],
)
def test_names(text: str, names: list[str]) -> None:
    assert expand(text, where="") == names


@pytest.mark.parametrize(
    "text",
    ["", "a,,b", "a,", "n[1-", "n]1[", "n[[1]]", "n[]", "n[3-1]", "n[a-b]", "n[1-99999999]", "a b",
     "n[1-60000],m[1-60000]", "a[1-999]b[1-999]c[1-999]"],
)  # fmt: skip
def test_invalid_inputs(text: str) -> None:
    with pytest.raises(InputError) as caught:
        expand(text, where="here")
    assert caught.value.where == "here"
