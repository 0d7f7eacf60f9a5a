"""PipeDream's graph format: exact expectations on small graphs, numbers of layers of the published ones."""

import time
from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock.profile.readers.pipedream import parse_pipedream
from penstock.profile.types import Profile
from tests.support.paths import INSTANCES


def line(
    number: int, description: str, forward: str = "1", backward: str = "2", size: str = "8", parameters: str = "0"
) -> str:
    return (
        f"node{number} -- {description} -- forward_compute_time={forward}, backward_compute_time={backward}, "
        f"activation_size={size}, parameter_size={parameters}"
    )


def read(*lines: str, rows: int = 1) -> Profile:
    return parse_pipedream("\n".join(lines), name="tiny", where="tiny.txt", micro_batch_size=rows)


def refused(*lines: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read(*lines)
    return caught.value


# A small network with a skip connection (node3 to node6) and a node with two outputs; nodes out of order as published.
RESIDUAL = (
    line(1, "Input", "18.9", "0.000", "4096.000"),
    line(3, "ReLU(inplace)", "0.5", "0.25", "2048.000"),
    line(2, "Conv2d(3, 64, kernel_size=(3, 3))", "2.211", "6.000", "2048.000", "1792.000"),
    line(4, "LSTM(64, 64)", "4.0", "8.0", "[512.0; 128.0; 128.0]", "33280.000"),
    line(5, "__getitem__(0)", "0.000", "0.000", "512.0"),
    line(6, "Add(inplace)", "0.125", "0.125", "2048.0"),
    line(7, "Linear(in_features=64, out_features=10, bias=True)", "1.0", "3.0", "40.0", "2600.000"),
    "\tnode1 -- node2",
    "\tnode2 -- node3",
    "\tnode3 -- node4",
    "\tnode4 -- node5",
    "\tnode5 -- node6",
    "\tnode3 -- node6",
    "\tnode6 -- node7",
)


def test_units_of_a_residual_network() -> None:
    profile = read(*RESIDUAL, rows=16)
    assert [unit.name for unit in profile.units] == ["node2 Conv2d", "node4 LSTM", "node7 Linear"]
    assert [unit.parameter_bytes for unit in profile.units] == [1792, 33280, 2600]
    assert (profile.name, profile.micro_batch_size, profile.kinds, profile.input_bytes) == (
        "tiny",
        16,
        ("profiled",),
        4096,
    )
    assert profile.ties == ()
    conv, lstm, linear = (unit.times[0] for unit in profile.units)
    # the data loading of node1 is not there; backward 6.25 ms in halves
    assert (conv.forward_s, conv.input_grad_s, conv.weight_grad_s) == (0.002711, 0.003125, 0.003125)
    assert (lstm.forward_s, lstm.input_grad_s, lstm.weight_grad_s) == (0.004125, 0.0040625, 0.0040625)
    assert (linear.forward_s, linear.input_grad_s, linear.weight_grad_s) == (0.001, 0.0015, 0.0015)
    assert all(time.micro_batch_size == 16 and time.step_s == 0 for time in (conv, lstm, linear))


def test_sizes_of_a_residual_network() -> None:
    sizes = [unit.sizes[0] for unit in read(*RESIDUAL, rows=16).units]
    # after conv + relu: only the output of relu, used twice; after lstm + getitem + add: only that of add
    assert [size.cut_bytes for size in sizes] == [2048, 2048, 0]
    # conv keeps the input, relu that of conv; lstm and add both keep that of relu (once), getitem the 768 of lstm,
    # add the 512 of getitem; linear keeps that of add
    assert [size.saved_bytes for size in sizes] == [4096 + 2048, 2048 + 768 + 512, 2048]
    assert [size.micro_batch_size for size in sizes] == [16, 16, 16]


def test_an_input_that_is_used_late_crosses_the_cuts_before() -> None:
    profile = read(
        line(1, "Input_ids", size="100"),
        line(2, "Input_mask", size="7"),
        line(3, "A", size="10", parameters="1"),
        line(4, "B", size="20", parameters="1"),
        line(5, "C", size="40", parameters="1"),
        *("node1 -- node3", "node3 -- node4", "node2 -- node4", "node4 -- node5", "node2 -- node5"),
    )
    assert [unit.sizes[0].cut_bytes for unit in profile.units] == [17, 27, 0]
    assert [unit.sizes[0].saved_bytes for unit in profile.units] == [100, 17, 27]
    assert profile.input_bytes == 107


def test_without_parameters_all_of_the_backward_is_input_gradient() -> None:
    (unit,) = read(line(1, "Softmax(dim=1)")).units
    assert (unit.times[0].input_grad_s, unit.times[0].weight_grad_s) == (0.002, 0.0)
    assert unit.sizes[0].cut_bytes == 0


def test_assumptions() -> None:
    assumptions = " ".join(read(*RESIDUAL).assumptions)
    for word in ("data loading", "half", "without parameters", "Saved bytes", "topologically"):
        assert word in assumptions


def test_a_layer_that_is_only_called_input_is_kept() -> None:
    named = line(1, "InputEmbedding(10, 10)", parameters="400")
    assert read(named).units[0].name == "node1 InputEmbedding"
    fed = read(line(1, "A"), line(2, "InputNorm"), "node1 -- node2")
    assert fed.units[0].times[0].forward_s == 0.002


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("Conv2d(3, 64)", "node1 Conv2d"),
        ("Attention -- of the decoder(8)", "node1 Attention"),
        ("odd -- forward_compute_time=7, here", "node1 odd"),
        ("Embed-Token", "node1 Embed-Token"),
        ("Seq(  (0): Linear -- x)", "node1 Seq"),
        ("", "node1"),
        ("(nothing)", "node1"),
    ],
)
def test_descriptions(description: str, name: str) -> None:
    assert read(line(1, description)).units[0].name == name


def test_layout_is_free() -> None:
    text = f"\r\n{line(1, 'A')} -- stage_id=3\r\n\r\n  {line(2, 'B')}  \r\n\tnode1 -- node2\r\nnode1 -- node2\r\n"
    assert parse_pipedream(text, name="n", where="w").num_units == 1


def test_duplicate_edges_count_once() -> None:
    profile = read(line(1, "A", parameters="1"), line(2, "B", parameters="1"), *["node1 -- node2"] * 3)
    assert profile.units[0].sizes[0].cut_bytes == 8


def test_errors_name_the_line() -> None:
    good = line(1, "A")
    error = refused(good, "something else")
    assert error.where == "tiny.txt:2"
    assert error.what == "neither a node nor an edge: 'something else'"
    assert "node1 -- description" in error.hint
    assert refused(good, line(1, "B")).where == "tiny.txt:2"
    assert refused(good, line(1, "B")).what == "duplicate node1"
    assert refused(good, "", "\tnode1 -- node7").where == "tiny.txt:3"
    assert refused("node7 -- node1", good).what == "the edge names node7, which does not exist"
    cycle = refused(good, line(2, "B"), line(3, "C"), "node2 -- node3", "node3 -- node2", "node1 -- node2")
    assert cycle.what == "the graph has a cycle: node2 -> node3 -> node2"
    assert cycle.where == "tiny.txt:5"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line(1, "A", forward="-1"), "forward_compute_time must not be negative"),
        (line(1, "A", backward="nan"), "backward_compute_time must be finite"),
        (line(1, "A", forward="inf"), "forward_compute_time must be finite"),
        (line(1, "A", forward="1e300"), "forward_compute_time exceeds 1,000,000,000 seconds"),
        (line(1, "A", forward="fast"), "forward_compute_time is 'fast', which is not a number"),
        (line(1, "A", forward="1_0"), "not a number"),
        (line(1, "A", forward="9" * 5000), "not a number"),
        (line(1, "A", forward=""), "not a number"),
        (line(1, "A", size="[1; -2]"), "activation_size must not be negative"),
        (line(1, "A", size="[1; 2"), "not a number"),
        (line(1, "A", size="[]"), "not a number"),
        (line(1, "A", size="1.2e18"), "activation_size exceeds 2**60 bytes"),
        (line(1, "A", size=f"[{2**60}; 1]"), "activation_size exceeds 2**60 bytes"),
        (line(1, "A", parameters="inf"), "parameter_size must be finite"),
        (line(1, "A", parameters="1e19"), "parameter_size exceeds 2**60 bytes"),
        (line(1, "A") + ", parameter_size=3", "neither a node nor an edge"),
        (line(1, "A") + ", more=3", "neither a node nor an edge"),
        (line(1, "A").replace(", parameter_size=0", ""), "neither a node nor an edge"),
        ("node1 -- A", "neither a node nor an edge"),
        ("node1 -- forward_compute_time=1", "neither a node nor an edge"),
        ("nodeX -- nodeY", "neither a node nor an edge"),
        (line(10**18, "A"), "neither a node nor an edge"),
    ],
)
def test_bad_lines(bad: str, message: str) -> None:
    error = refused(bad)
    assert error.where == "tiny.txt:1"
    assert message in error.what


def test_nothing_to_plan() -> None:
    assert refused("").what == "there are no nodes"
    assert refused(line(1, "Input")).what == "every node is an input of the model"


def test_twenty_thousand_nodes() -> None:
    count = 20_000
    nodes = [line(i, f"Linear({i})", parameters=str(i % 2)) for i in range(count)]
    edges = [f"\tnode{i} -- node{j}" for i in range(count) for j in (i + 1, i + 400, count - 1) if i < j < count]
    began = time.process_time()
    profile = read(*nodes, *edges)
    # about half a second; anything quadratic would take minutes
    assert time.process_time() - began < 5
    assert profile.num_units == count // 2 + 1
    # node0 and, from node1 on, pairs (odd, even); everything before a cut is still used by the last node
    assert profile.units[0].sizes[0].cut_bytes == 8
    assert profile.units[-2].sizes[0].cut_bytes == 8 * (count - 1)


def test_a_long_line_is_refused_in_linear_time() -> None:
    began = time.process_time()
    refused("node1 -- A" + " -- forward_compute_time=1" * 100_000)
    assert time.process_time() - began < 2


def instances() -> Path:
    folder = INSTANCES
    if not folder.is_dir():
        pytest.skip(f"no published profiles in {folder}; PENSTOCK_INSTANCES names the folder")
    return folder


@pytest.mark.parametrize(
    ("file", "num_units"),
    [
        ("pipedream/vgg16", 16),
        ("pipedream/alexnet", 8),
        ("pipedream/gnmt", 11),
        ("pipedream/resnet50", 107),
        ("hpgo/vgg19", 19),
        ("hpgo/bert_large", 27),
        ("hpgo/xlnet", 25),
        ("hpgo/amoebanet_18", 24),
        ("hpgo/gnmt_16", 19),
    ],
)
def test_published_profiles(file: str, num_units: int) -> None:
    path = instances() / f"{file}.txt"
    profile = parse_pipedream(path.read_text(), name=path.stem, where=str(path))
    assert profile.num_units == num_units
    assert profile.units[-1].sizes[0].cut_bytes == 0
