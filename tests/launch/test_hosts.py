"""The ranks of each host, and the commands that start them."""

import os
import sys

import pytest

from penstock.bundle import PlanBundle
from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.errors import InputError
from penstock.launch.hosts import Hosts, default_threads
from penstock.launch.runs.torchrun import DEFAULT_PORT, torchrun_command
from penstock.plan.pricing import price
from penstock.plan.types import Origin, Plan, Stage, on
from penstock.profile.types import Profile, Sizes, Times, Unit


def bundle_of(host_of: str, unused: str = "") -> PlanBundle:
    """A plan with one stage per device: device d0 is on the host of the first letter. `unused` are device numbers."""
    names = [f"d{number}" for number in range(len(host_of))]
    used = [name for name in names if name[1:] not in unused]
    times = Times(kind="X", micro_batch_size=1, forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0)
    sizes = Sizes(micro_batch_size=1, cut_bytes=1, saved_bytes=1)
    units = tuple(Unit(name=name, parameter_bytes=1, sizes=(sizes,), times=(times,)) for name in used)
    profile = Profile(name="p", micro_batch_size=1, units=units)
    wire = Wire(bandwidth=1e9)
    cluster = Cluster(
        name="c",
        hosts=tuple(Host(name=name, inside=wire) for name in sorted(set(host_of))),
        devices=tuple(Device(name=name, host=host, kind="X") for name, host in zip(names, host_of, strict=True)),
        between=wire,
    )
    plan = Plan(
        planner="by hand",
        schedule="1f1b",
        num_microbatches=1,
        micro_batch_size=1,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=tuple(Stage(start=i, stop=i + 1, forward=on(name), backward=on(name)) for i, name in enumerate(used)),
    )
    return PlanBundle(plan, profile, cluster, price(plan, profile, cluster), None)


def hosts_of(nnodes: int) -> list[Hosts]:
    endpoint = "h:1" if nnodes > 1 else None
    return [Hosts(nnodes, node_rank, endpoint) for node_rank in range(nnodes)]


@pytest.mark.parametrize(
    ("host_of", "unused", "ranks"),
    [
        ("aab", "", [[0, 1, 2]]),
        ("aab", "0", [[0, 1]]),
        # One host for each of the cluster's: its own devices.
        ("aab", "", [[0, 1], [2]]),
        ("abb", "", [[0], [1, 2]]),
        ("aabbbc", "1", [[0], [1, 2, 3], [4]]),
        ("aabbbc", "5", [[0, 1], [2, 3, 4]]),
        # Otherwise the same number everywhere.
        ("aaaa", "", [[0, 1], [2, 3]]),
        ("aabb", "", [[0], [1], [2], [3]]),
        ("aaabbb", "", [[0, 1], [2, 3], [4, 5]]),
        # The devices of a host do not follow each other.
        ("abab", "", [[0, 1], [2, 3]]),
    ],
)
def test_every_rank_is_on_one_host(host_of: str, unused: str, ranks: list[list[int]]) -> None:
    bundle = bundle_of(host_of, unused)
    counts = [hosts.num_local_ranks(bundle) for hosts in hosts_of(len(ranks))]
    # A host's ranks follow those of the hosts before it.
    assert [[*range(sum(counts[:number]), sum(counts[: number + 1]))] for number in range(len(counts))] == ranks


@pytest.mark.parametrize(
    ("host_of", "nnodes", "message"),
    [
        ("aab", 4, "the plan uses 3 devices on 2 hosts, which cannot be divided over 4 hosts"),
        ("aba", 2, "the plan uses 3 devices on 2 hosts, which cannot be divided over 2 hosts"),
        ("aaa", 2, "the plan uses 3 devices on 1 hosts, which cannot be divided over 2 hosts"),
    ],
)
def test_devices_that_cannot_be_divided(host_of: str, nnodes: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        hosts_of(nnodes)[0].num_local_ranks(bundle_of(host_of))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 0, None), "--nnodes > 1 requires --rdzv-endpoint"),
        ((2, 2, "h:1"), r"node rank 2 must be less than the number of hosts \(2\)"),
        ((1, 1, None), r"node rank 1 must be less than the number of hosts \(1\)"),
        ((1, 0, "h:1"), "--rdzv-endpoint requires --nnodes > 1"),
    ],
)
def test_options_that_contradict_each_other(arguments: tuple[int, int, str | None], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Hosts(*arguments)


def test_commands() -> None:
    one = Hosts()
    assert one.command(3, "m", ["-x"]) == [
        *(sys.executable, "-m", "penstock.launch", "--nproc-per-node", "3", "-m", "m", "-x")
    ]
    several = Hosts(2, 1, "10.0.0.1:29501")
    assert several.command(3, "m", ["-x"])[3:] == [
        *("--nnodes", "2", "--node-rank", "1", "--master-addr", "10.0.0.1", "--master-port", "29501"),
        *("--nproc-per-node", "3", "-m", "m", "-x"),
    ]


@pytest.mark.parametrize(
    ("endpoint", "address", "port"),
    [
        ("host", "host", str(DEFAULT_PORT)),
        ("host:1234", "host", "1234"),
        ("host:", "host", str(DEFAULT_PORT)),
        ("10.0.0.1:1", "10.0.0.1", "1"),
    ],
)
def test_the_port_may_be_left_out(endpoint: str, address: str, port: str) -> None:
    command = torchrun_command(nnodes=2, node_rank=0, endpoint=endpoint, num_ranks=1, module="m", arguments=[])
    assert command[command.index("--master-addr") + 1] == address
    assert command[command.index("--master-port") + 1] == port


def test_ranks_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [default_threads(num) for num in (1, 2, 3, 8, 9)] == [8, 4, 2, 1, 1]
