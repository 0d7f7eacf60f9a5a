"""Piper's JSON: exact expectations on a small graph."""

import json
from typing import Any

import pytest

from penstock.errors import InputError
from penstock.profile.readers.piper import parse_piper
from penstock.profile.types import Profile
from tests.support.paths import INSTANCES


def node(number: int, name: str, seconds: float = 0.0, parameters: float = 0.0, memory: float = 0.0) -> dict[str, Any]:
    vanilla = {"id": "vanilla", "timePerSample": seconds, "parameterSize": parameters, "memoryUsageA": memory}
    other = {"id": "activation recomp", "timePerSample": 99.0, "parameterSize": 99.0, "memoryUsageA": 99.0}
    rest = {"memoryUsageB": 2 * parameters, "syncTimeFw": {}, "syncTimeBw": {"1": 0.0}}
    return {"id": number, "name": name, "TMPCs": {"2": "not read", "1": [other | rest, vanilla | rest]}}


def edge(source: int, dest: int, cost: float) -> dict[str, Any]:
    return {"sourceId": source, "destId": dest, "communicationCost": cost}


def document() -> dict[str, Any]:
    return {
        "maxDevices": 10,
        "bandwidth": 25e9,
        "nodes": [
            node(0, "tensor", memory=16.0),
            node(1, "Embedding", 0.003, 800.0, 100.0),
            node(2, "tensor", memory=32.0),
            node(3, "Dropout", 0.0003, 0.0, 50.0),
            node(4, "Layer", 0.03, 1000.0, 5000.0),
            node(5, "Layer", 0.06, 1000.0, 5000.0),
        ],
        # The mask (2) goes to both layers; layer 4 gives one tensor to 5, and the dropout one of another size as well.
        "edges": [
            edge(0, 1, 16.0),
            edge(1, 3, 64.0),
            edge(3, 4, 64.0),
            edge(2, 4, 32.0),
            edge(2, 5, 32.0),
            edge(3, 5, 8.0),
            edge(4, 5, 64.0),
        ],
    }


def read(value: object) -> Profile:
    return parse_piper(json.dumps(value), name="tiny", where="tiny.json")


def refused(value: object) -> InputError:
    with pytest.raises(InputError) as caught:
        read(value)
    return caught.value


def test_units() -> None:
    profile = read(document())
    assert [unit.name for unit in profile.units] == ["node1 Embedding", "node4 Layer", "node5 Layer"]
    assert [unit.parameter_bytes for unit in profile.units] == [800, 1000, 1000]
    assert (profile.micro_batch_size, profile.kinds, profile.input_bytes) == (1, ("profiled",), 16 + 32)
    # a third each; the embedding's unit has the dropout as well: 0.0033 s
    thirds = [
        (unit.times[0].forward_s, unit.times[0].input_grad_s, unit.times[0].weight_grad_s) for unit in profile.units
    ]
    assert thirds == [pytest.approx((value,) * 3) for value in (0.0011, 0.01, 0.02)]
    # after the embedding: 64 and 8 from the dropout, 32 of the mask; after layer 4: its 64, 8 and 32
    assert [unit.sizes[0].cut_bytes for unit in profile.units] == [104, 104, 0]
    assert [unit.sizes[0].saved_bytes for unit in profile.units] == [150, 5000, 5000]


def test_without_parameters_there_is_no_weight_gradient() -> None:
    profile = read({"nodes": [node(0, "Softmax", 0.3)], "edges": []})
    times = profile.units[0].times[0]
    assert (times.forward_s, times.input_grad_s, times.weight_grad_s) == pytest.approx((0.1, 0.2, 0.0))


def test_assumptions() -> None:
    assumptions = " ".join(read(document()).assumptions)
    for word in ("third", "memoryUsageA", "memoryUsageB", "vanilla", "same tensor"):
        assert word in assumptions


def test_errors_name_the_place() -> None:
    broken = document()
    broken["nodes"][2]["id"] = 1
    assert refused(broken).what == "duplicate node 1"
    assert refused(broken).where == "tiny.json, at $.nodes[2]"
    broken = document()
    broken["edges"][4]["destId"] = 77
    assert refused(broken).what == "the edge names node 77, which does not exist"
    assert refused(broken).where == "tiny.json, at $.edges[4]"
    broken = document()
    broken["edges"].append(edge(5, 4, 1.0))
    assert refused(broken).what == "the graph has a cycle: node4 -> node5 -> node4"
    assert refused(broken).where == "tiny.json, at $.edges[7]"
    broken = document()
    del broken["nodes"][1]["TMPCs"]["1"]
    assert "TMPCs" in refused(broken).where
    broken = document()
    del broken["nodes"][1]["TMPCs"]["1"][1]
    assert refused(broken).what == 'node 1 has no variant "vanilla" on one device'


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("timePerSample", -1, "timePerSample must not be negative"),
        ("timePerSample", 1e10, "timePerSample exceeds"),
        ("parameterSize", -1, "parameterSize must not be negative"),
        ("parameterSize", 2.0**61, "parameterSize exceeds 2**60 bytes"),
        ("memoryUsageA", 1e300, "memoryUsageA exceeds"),
        ("memoryUsageA", "much", "Expected `float`"),
    ],
)
def test_unfit_numbers(key: str, value: object, message: str) -> None:
    broken = document()
    broken["nodes"][4]["TMPCs"]["1"][1][key] = value
    assert message in refused(broken).what
    assert "nodes[4]" in refused(broken).where or "nodes[...]" in refused(broken).where


def test_unfit_edge() -> None:
    broken = document()
    broken["edges"][0]["communicationCost"] = -5
    assert refused(broken).what == "communicationCost must not be negative"


def test_nothing_to_plan() -> None:
    assert refused({"nodes": [], "edges": []}).what == "there are no nodes"
    assert refused({"nodes": [node(0, "tensor")], "edges": []}).what == "every node is an input of the model"
    with pytest.raises(InputError, match="broken JSON"):
        parse_piper("{", name="n", where="w")
    with pytest.raises(InputError, match="broken JSON"):
        parse_piper('{"x": ' + "[" * 100_000, name="n", where="w")


def test_published_profile() -> None:
    folder = INSTANCES
    if not folder.is_dir():
        pytest.skip(f"no published profiles in {folder}; PENSTOCK_INSTANCES names the folder")
    profile = parse_piper((folder / "piper" / "bert32.json").read_text(), name="bert32", where="bert32.json")
    # the embedding, 32 layers and the pooler
    assert profile.num_units == 34
    # every layer hands 16 MiB on; the 30 MiB that node 4 gives to all of them cross every cut up to the last layer
    assert {unit.sizes[0].cut_bytes for unit in profile.units[1:32]} == {16777216 + 31457280}
    assert profile.units[32].sizes[0].cut_bytes == 31457280
