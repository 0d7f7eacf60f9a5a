"""Limits of inputs: a value at the limit is accepted, the next one is refused with a message."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from xml.etree.ElementTree import Element

import msgspec
import pytest

from penstock.cluster.diagnostics import age_warning, cluster_warnings
from penstock.cluster.load import parse_spec
from penstock.cluster.provenance import ProbeRecord
from penstock.cluster.toml.reader import parse_cluster
from penstock.cluster.topology.load import parse_topology
from penstock.cluster.topology.nccl.xml_tree import parse_xml
from penstock.cluster.topology.options import check_size
from penstock.cluster.topology.slurm.hostlist import expand
from penstock.cluster.topology.slurm.plain_yaml import Node, parse_yaml
from penstock.cluster.types import Cluster, Device
from penstock.errors import InputError
from penstock.plan.types import Stage, on
from penstock.planners.problem import Problem
from penstock.profile.readers.graph import check_bytes, check_seconds
from penstock.report.analysis.timeline_validation import validate_timeline
from penstock.report.html.payload.report_data import page_data
from penstock.report.subject import ReportSubject
from penstock.schedules.registry import check_size as check_num_forwards
from penstock.simulate.evaluation import Evaluation, evaluate
from tests.support.small import equal_profile, hand_plan, one_host


def hosts(text: str) -> list[str]:
    return expand(text, where="f")


def nested_lists(depth: int) -> Node:
    return parse_yaml("- " * depth + "a", where="f")


def nested_elements(depth: int) -> Element:
    return parse_xml("<a>" * depth + "</a>" * depth, where="f")


def elements(count: int) -> Element:
    return parse_xml("<a>" + "<b/>" * (count - 1) + "</a>", where="f")


def switches(levels: int) -> Cluster:
    """Two nodes below the lowest of a chain of switches."""
    chain = [f"SwitchName=s{level} Switches=s{level - 1}" for level in range(1, levels)]
    return parse_topology("\n".join(["SwitchName=s0 Nodes=n[1-2]", *chain]), name="c", where="f", source="slurm")


def nvlinks(*counts: int) -> Cluster:
    """Two GPUs of a host with such links to a switch, in NCCL's XML."""
    links = "".join(f'<nvlink count="{count}" tclass="0x068000"/>' for count in counts)
    gpus = "".join(f'<pci busid="{dev}"><gpu dev="{dev}" sm="80">{links}</gpu></pci>' for dev in range(2))
    return parse_topology(f"<system><cpu>{gpus}</cpu></system>", name="c", where="f", source="nccl")


def nvidia_smi(count: int) -> Cluster:
    text = f"\tGPU0\tGPU1\nGPU0\t X \tNV{count}\nGPU1\tNV{count}\t X \n"
    return parse_topology(text, name="c", where="f", source="nvidia-smi")


def spec_of_length(length: int) -> Cluster:
    rest = "2 x  @ 1 GB/s"
    return parse_spec(rest.replace("x ", "x " + "K" * (length - len(rest))))


def memory(num_bytes: int) -> Cluster:
    return parse_cluster(f'devices_per_host = 1\nkind = "K"\nmemory = "{num_bytes} B"\n', where="f")


def residual(value: float) -> Cluster:
    probe = f"date = 2026-01-31T12:00:00Z\nbackend = 'gloo'\nrounds = 1\nresiduals = [[{value}]]\n"
    return parse_cluster(f'devices_per_host = 1\nkind = "K"\n[probe]\n{probe}', where="f")


def problem(num_microbatches: int, micro_batch_size: int | None = None) -> Problem:
    return Problem(equal_profile(1), one_host(1), num_microbatches, micro_batch_size=micro_batch_size)


@pytest.mark.parametrize(
    ("accepted", "refused", "message"),
    [
        (lambda: check_size(1024, "f", ""), lambda: check_size(1025, "f", ""), "limit of 1,024"),
        (lambda: hosts("n[1-65536]"), lambda: hosts("n[1-65537]"), "not a range"),
        (lambda: hosts("n[1-65535,0]"), lambda: hosts("n[1-65535,0,0]"), "more than 65,536 names"),
        (lambda: hosts("n[1-65535],a"), lambda: hosts("n[1-65535],a,b"), "more than 65,536 names"),
        (lambda: hosts("n[1-256][1-256]"), lambda: hosts("n[1-257][1-256]"), "more than 65,536 names"),
        (lambda: hosts("n[3-3]"), lambda: hosts("n[3-2]"), "not a range"),
        (lambda: nested_lists(32), lambda: nested_lists(33), "nested too deeply"),
        (lambda: nested_elements(64), lambda: nested_elements(65), "nested too deeply"),
        (lambda: elements(100_000), lambda: elements(100_001), "too many elements"),
        (lambda: switches(32), lambda: switches(33), "exceed 32 levels"),
        (lambda: nvlinks(128), lambda: nvlinks(129), "count of <nvlink>"),
        (lambda: nvlinks(1), lambda: nvlinks(0), "count of <nvlink>"),
        (lambda: nvlinks(64, 64), lambda: nvlinks(64, 65), "a GPU has 129 NVLinks"),
        (lambda: nvidia_smi(128), lambda: nvidia_smi(129), "unknown link class 'NV129'"),
        (lambda: nvidia_smi(1), lambda: nvidia_smi(0), "unknown link class 'NV0'"),
        (lambda: parse_spec("65536 x K @ 1 GB/s"), lambda: parse_spec("65537 x K @ 1 GB/s"), "more than 65,536"),
        (lambda: spec_of_length(300), lambda: spec_of_length(301), "not a cluster spec"),
        (lambda: memory(2**60), lambda: memory(2**60 + 2**10), "at most 2**60 bytes"),
        (lambda: residual(1e6), lambda: residual(1e6 + 1), "from 0 to 1e+06"),
        (lambda: check_seconds(1e9, "t", "f"), lambda: check_seconds(math.nextafter(1e9, 2e9), "t", "f"), "seconds"),
        (lambda: check_bytes(2**60, "t", "f"), lambda: check_bytes(2**60 + 1, "t", "f"), "2**60 bytes"),
        (lambda: problem(1), lambda: problem(0), "must be at least 1 and at most 65536"),
        (lambda: problem(2**16), lambda: problem(2**16 + 1), "must be at least 1 and at most 65536"),
        (lambda: problem(1, 1), lambda: problem(1, 0), "must be at least 1 and at most"),
        (lambda: problem(1, 2**40), lambda: problem(1, 2**40 + 1), "must be at least 1 and at most"),
    ],
)
def test_at_and_beyond(accepted: Callable[[], object], refused: Callable[[], object], message: str) -> None:
    accepted()
    with pytest.raises(InputError) as caught:
        refused()
    assert message in str(caught.value)


def test_memory_of_a_device() -> None:
    for memory_bytes in (0, 2**60):
        assert Device(name="d", host="h", kind="K", memory_bytes=memory_bytes).memory_bytes == memory_bytes


def test_length_of_a_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "GB/s,a\na,\n"
    monkeypatch.setattr("penstock.cluster.topology.load.MAX_CHARACTERS", len(text))
    assert parse_topology(text, name="c", where="f.csv").num_devices == 1
    with pytest.raises(InputError, match="more than 10 characters"):
        parse_topology(text + "\n", name="c", where="f.csv")


def test_rows_of_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.topology.csv_matrix._MAX_ROWS", 3)
    parse_topology("GB/s,a,b\na,,1\nb,1,\n", name="c", where="f.csv", source="csv")
    with pytest.raises(InputError, match="more than 3 rows"):
        parse_topology("GB/s,a,b,c\na,,1,1\nb,1,,1\nc,1,1,\n", name="c", where="f.csv", source="csv")


def test_devices_of_a_matrix_of_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.types.MAX_MATRIX_DEVICES", 3)
    assert one_host(3).bandwidth.shape == (3, 3)
    with pytest.raises(InputError, match="exceeds the limit of 3"):
        _ = one_host(4).bandwidth


def test_warnings_begin_at_their_limits() -> None:
    # 1.25 is the least ratio of two directions, 90 % the least speed, and 31 days the greatest age without a warning.
    wires = 'devices_per_host = 2\nkind = "K"\ninside = "4 GB/s"\n'
    link = '[[link]]\nfrom = "d0"\nto = "d1"\nwire = "{} GB/s"\n'
    assert cluster_warnings(parse_cluster(wires + link.format(4.999), where="f")) == []
    (uneven,) = cluster_warnings(parse_cluster(wires + link.format(5), where="f"))
    assert uneven.endswith("directions: d0 to d1 5.00 GB/s, back 4.00 GB/s")
    device = '[[device]]\nname = "slow"\nhost = "h0"\nspeed = {}\n'
    assert cluster_warnings(parse_cluster(wires + device.format(0.9), where="f")) == []
    assert len(cluster_warnings(parse_cluster(wires + device.format(0.899), where="f"))) == 1
    date = datetime(2026, 1, 31, tzinfo=UTC)
    old = msgspec.structs.replace(one_host(1), probed=ProbeRecord(date=date, backend="gloo"))
    assert age_warning(old, date + timedelta(days=31)) is None
    assert age_warning(old, date + timedelta(days=31, seconds=1)) is not None


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    profile, cluster = equal_profile(2), one_host(2)
    stages = [
        Stage(start=number, stop=number + 1, forward=on(name), backward=on(name))
        for number, name in enumerate(("d0", "d1"))
    ]
    return evaluate(hand_plan(profile, cluster, stages), profile, cluster)


def test_actions_of_a_page(evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch) -> None:
    num, subjects = evaluation.program.num_actions, [ReportSubject("one", evaluation.timeline)]
    limit = "penstock.report.html.payload.report_data.MAX_ACTIONS"
    monkeypatch.setattr(limit, num)
    assert page_data(subjects, title="t").summaries
    monkeypatch.setattr(limit, num - 1)
    with pytest.raises(InputError, match="exceeds the limit of a report page"):
        page_data(subjects, title="t")


def test_seconds_of_a_drawn_timeline(evaluation: Evaluation) -> None:
    timeline = evaluation.timeline
    validate_timeline(timeline, max_seconds=timeline.iteration_s)
    with pytest.raises(InputError, match="the action runs from"):
        validate_timeline(timeline, max_seconds=math.nextafter(timeline.iteration_s, 0))


def test_forwards_of_a_plan(evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.schedules.registry.MAX_JOBS", 4)
    assert evaluation.costs is not None
    check_num_forwards(evaluation.costs)  # two stages, two micro-batches
    monkeypatch.setattr("penstock.schedules.registry.MAX_JOBS", 3)
    with pytest.raises(InputError, match=r"2 micro-batches x 2 replicas\) exceeds the limit of 3"):
        check_num_forwards(evaluation.costs)
