"""Which rank runs which device of a plan."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import penstock
from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.device import DeviceIdentity
from penstock.errors import MismatchError
from penstock.plan.types import Plan
from penstock.runtime.layout.layout import Layout, Reducer, StageView, place_on_ranks
from penstock.runtime.layout.rank_devices import assign_ranks, check_kinds
from tests.support.reach import reach, reaches
from tests.support.runtime.comparison import check, keeps_every_order
from tests.support.runtime.grid import cluster_of
from tests.support.runtime.models import KINDS, profile_of
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.renamed_hosts import train_on_hosts
from tests.support.runtime.training import Job
from tests.support.runtime.user_models import make, plan_of
from tests.support.thoroughness import examples


def gpu(host: str, index: int, kind: str = "A100-40") -> DeviceIdentity:
    return DeviceIdentity(host, "cuda", index, f"GPU-{host}-{index}", kind)


def cpu(host: str, kind: str = "cpu-1-thread") -> DeviceIdentity:
    return DeviceIdentity(host, "cpu", 0, "", kind)


def device(name: str, kind: str = "A100-40") -> Device:
    return Device(name=name, host=name.partition(".")[0], kind=kind)


class Run(NamedTuple):
    """A cluster, the devices of a plan for it, and the ranks of a run on it."""

    devices: tuple[Device, ...]
    identities: tuple[DeviceIdentity, ...]
    has_names: bool


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Hosts start in any order, a plan may use some of the devices, and the run may have other names of hosts."""
    kinds = st.sampled_from(["A100-40", "T4", "MI300X"])
    hosts = [[draw(kinds)] * draw(st.integers(1, 3)) for _ in range(draw(st.integers(1, 4)))]
    has_names = draw(st.booleans())
    names = [f"h{number}" if has_names else f"node-{number}" for number in range(len(hosts))]
    identities = [
        gpu(names[number], index, kind)
        for number in draw(st.permutations(range(len(hosts))))
        for index, kind in draw(st.permutations(list(enumerate(hosts[number]))))
    ]
    whole = [device(f"h{number}.d{index}", kind) for number, own in enumerate(hosts) for index, kind in enumerate(own)]
    # Every host is used: otherwise hosts of one kind cannot be told apart.
    used = [item for item in whole if item.name.endswith("d0") or draw(st.booleans())]
    return Run(tuple(used), tuple(identities), has_names)


@reaches(moved=0.2, partial=0.1, unlike=0.1, named=0.2)
@examples(200)
@given(run=runs())
def test_each_device_has_a_rank_of_its_host_and_kind(run: Run) -> None:
    ranks = assign_ranks(run.devices, run.identities)
    assert len(set(ranks)) == len(ranks) == len(run.devices)
    host_of: dict[str, str] = {}
    for item, rank in zip(run.devices, ranks, strict=True):
        identity = run.identities[rank]
        assert identity.kind == item.kind
        assert host_of.setdefault(item.host, identity.host) == identity.host
        assert item.name.endswith(f".d{identity.index}")
        if run.has_names:
            assert identity.host == item.host
    assert len(set(host_of.values())) == len(host_of)
    reach("moved", list(ranks) != sorted(ranks))
    reach("partial", len(run.devices) < len(run.identities))
    reach("unlike", len({item.kind for item in run.devices}) > 1)
    reach("named", run.has_names)


def test_cpu_ranks_of_one_host_are_taken_in_order() -> None:
    devices = [device(f"h0.d{number}", "cpu-1-thread") for number in range(3)]
    assert assign_ranks(devices, [cpu("here")] * 4) == (0, 1, 2)
    # A plan for several hosts, tried out on one.
    assert assign_ranks([device("h1.d0", "k"), device("h0.d0", "k")], [cpu("here")] * 2) == (0, 1)


def test_hosts_are_matched_by_the_start_of_their_name() -> None:
    devices = [device("a.d0", "k"), device("b.d0", "k")]
    assert assign_ranks(devices, [cpu("b.example.org"), cpu("a.example.org")]) == (1, 0)


def test_a_rank_that_sees_one_device_is_matched_by_kind() -> None:
    own = [DeviceIdentity("here", "cuda", 0, f"GPU-{number}", "T4") for number in range(3)]
    assert assign_ranks([device(f"h0.d{number}", "T4") for number in range(3)], own) == (0, 1, 2)


@pytest.mark.parametrize(
    ("devices", "identities", "text", "hint"),
    [
        ([device("h.d0")], [cpu("here")], "A100-40 as device h.d0, but rank 0 on host here has cpu-1-thread", "cpu"),
        ([device("h.d0")], [gpu("x", 0, "A100-80")], "but rank 0 on host x has A100-80", "--any-kind"),
        ([device("h.d0", "cpu-1-thread")], [gpu("x", 0)], "has cpu-1-thread as device h.d0", "--any-kind"),
        ([device("h.d0", "T4"), device("h.d1")], [gpu("x", 0, "T4"), gpu("x", 1, "T4")], "rank 1 .* has T4", "Plan"),
        ([device("h.d0")] * 2, [gpu("x", 0)] * 2, "rank 0 and rank 1 use the same device .cuda:0 of host x", "Give"),
        (
            [device("h.d0"), device("h.d1"), device("g.d0")],
            [gpu("x", 0), gpu("y", 0), gpu("y", 1, "T4")],
            "but rank 2 on host y has T4",
            "Plan",
        ),
        (
            [device("h.d0"), device("h.d1"), device("g.d0")],
            [gpu("x", 0), gpu("y", 0), gpu("z", 0)],
            "uses 2 devices of host h, but no host of this run has as many",
            "every host",
        ),
    ],
)
def test_runs_that_do_not_fit(
    devices: Sequence[Device], identities: Sequence[DeviceIdentity], text: str, hint: str
) -> None:
    with pytest.raises(MismatchError, match=text) as caught:
        assign_ranks(devices, identities)
    assert hint in caught.value.hint


def test_other_kinds_can_be_accepted() -> None:
    assert assign_ranks([device("h.d0"), device("h.d1")], [cpu("here")] * 2, any_kind=True) == (0, 1)
    assert assign_ranks([device("h.d0", "cpu-1-thread")], [gpu("x", 0)], any_kind=True) == (0,)


def test_without_a_cluster_a_plan_for_gpus_does_not_run_on_cpus() -> None:
    with pytest.raises(
        MismatchError, match="the plan is for devices of kind A100-40 or T4, but rank 1 on host here has"
    ):
        check_kinds(["A100-40", "T4"], [gpu("x", 0), cpu("here")])
    with pytest.raises(MismatchError, match="is for devices of kind T4, but rank 0 on host x has A100-40"):
        check_kinds(["T4"], [gpu("x", 0)])
    with pytest.raises(MismatchError, match="use the same device"):
        check_kinds([], [gpu("x", 0), gpu("x", 0)])


def test_without_a_cluster_any_of_its_kinds_will_do() -> None:
    check_kinds(["A100-40", "cpu-2-threads"], [cpu("here"), gpu("x", 0)])
    check_kinds(["k"], [cpu("here"), gpu("x", 0)])
    check_kinds([], [cpu("here"), gpu("x", 0)])


def test_a_pipeline_without_a_cluster_refuses_a_plan_for_gpus(rank_pool: RankPool) -> None:
    profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=4)
    plan = penstock.plan(profile, penstock.load_cluster("2 x T4 @ 10 GB/s"), 4, planner="balanced")
    assert plan.kinds == ("T4",)
    own = replace(plan_of([0, 3, 7], [["d0"], ["d1"]]), kinds=plan.kinds)
    for outcome in rank_pool.outcomes(2, make, "mlp", own):
        assert "the plan is for devices of kind T4, but rank 0 on host" in str(outcome)
    assert rank_pool.run(2, steps_on_chosen_device, own) == [1, 1]


def steps_on_chosen_device(plan: Plan) -> int:
    """With device="cpu" the plan trains on the CPU."""
    pipe = make("mlp", plan, device="cpu")
    pipe.step(*KINDS["mlp"].batch(0, 12))
    pipe.close()
    return 1


def test_a_layout_moves_to_other_ranks() -> None:
    stage = StageView(0, 1, (0.5, 0.5), (0, 1), (1, 2), recompute=False, needs_sync=False)
    layout = Layout(("a", "b", "c"), (stage,), 2, (Reducer(False, 0, (1, 2), ("w",)),))
    moved = place_on_ranks(layout, (3, 0, 1))
    assert moved.devices == ("b", "c", "", "a")
    assert (moved.stages[0].forward, moved.stages[0].backward) == ((3, 0), (0, 1))
    assert moved.reducers == (Reducer(False, 0, (0, 1), ("w",)),)
    assert place_on_ranks(layout, (0, 1, 2)) is layout


def two_hosts(num_devices: int) -> Cluster:
    """The cluster of the grid, with its last device on a host of its own."""
    known = cluster_of(num_devices)
    wire = Wire(bandwidth=2e6, latency_s=1e-4)
    devices = (*known.devices[:-1], replace(known.devices[-1], host="last"))
    return replace(known, devices=devices, hosts=(*known.hosts, Host(name="last", inside=wire)))


@pytest.mark.parametrize("hosts", [("last", "h", "h"), ("h", "last", "h", "h"), ("h", "h", "last", "last")])
@pytest.mark.parametrize("planner", ["balanced", "data_parallel"])
def test_training_on_ranks_in_another_order(rank_pool: RankPool, hosts: tuple[str, ...], planner: str) -> None:
    profile, cluster = profile_of("gpt"), two_hosts(3)
    job = Job("gpt", penstock.plan(profile, cluster, 4, planner=planner), profile, cluster)
    assert len(job.plan.devices) == 3
    results = rank_pool.run(len(hosts), train_on_hosts, job, hosts)
    assert sum(bool(item.parameters) for item in results) == 3
    check(job, results, exact=keeps_every_order(job))
