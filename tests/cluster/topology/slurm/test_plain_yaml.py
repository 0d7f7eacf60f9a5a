"""The supported subset of YAML, and errors for everything else."""

from typing import Any

import pytest

from penstock.cluster.topology.slurm.plain_yaml import Node, parse_yaml
from penstock.errors import InputError


def plain(node: Node) -> Any:
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    return node.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("---\na: 1\nb:   two words  # said\n", {"a": "1", "b": "two words"}),
        ("- a\n- b\n", ["a", "b"]),
        ("list:\n- a\n- 'it''s'\nend: \"x # y\"\n", {"list": ["a", "it's"], "end": "x # y"}),
        ("list:\n    - a: 1\n      b: 2\n    -\n      a: 3\n", {"list": [{"a": "1", "b": "2"}, {"a": "3"}]}),
        ("a: [1, 2]\nb: n[1-2]\n", {"a": ["1", "2"], "b": "n[1-2]"}),
        ("a:\nb:\n  c: d\n", {"a": "", "b": {"c": "d"}}),
        ("- - a\n  - b\n- c\n", [["a", "b"], "c"]),
    ],
)
def test_valid_documents(text: str, value: Any) -> None:
    assert plain(parse_yaml(text, where="f")) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1", "f:1: anchors"),
        ("a: 1\nb: *x", "f:2: references"),
        ("a: !!int 1", "tags"),
        ("a: |\n  text", "multi-line strings"),
        ("a: {b: c}", "flow maps"),
        ("a: [1,\n  2]", "multi-line flow lists"),
        ("a: 1\n   b: 2", "f:2: inconsistent indentation"),
        ("a:\n    b: 1\n  c: 2", "f:3: inconsistent indentation"),
        ("\ta: 1", "tab"),
        ("a: 1\na: 2", "duplicate key 'a'"),
        ("a: 'x", "not closed"),
        ("a: b: c", "expected a string, not a map"),
        ("- " * 50 + "a", "nested too deeply"),
    ],
)
def test_invalid_inputs(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, where="f")
    assert message in str(caught.value)
