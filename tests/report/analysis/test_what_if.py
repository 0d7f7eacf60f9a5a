"""What would help: the change that must gain most gains most, by numbers worked out by hand."""

import msgspec

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.plan.types import Origin, Plan, Stage, on
from penstock.report.analysis.what_if import Help, help_sentences, what_would_help
from penstock.report.analysis.what_if_changes import changes
from penstock.simulate.evaluation import evaluate, evaluate_costs
from tests.support.small import equal_profile, one_host
from tests.support.strategies import Case, two_stages


def _helps(case: Case) -> list[Help]:
    result = evaluate_costs(case.costs, within_memory=False)
    return what_would_help(result.timeline, result.costs, case.profile)


def _case(cluster: Cluster, *, schedule: str = "gpipe", recompute: bool = False, **costs: int) -> Case:
    profile = equal_profile(2, **costs)
    stages = tuple(
        Stage(start=number, stop=number + 1, forward=on(name), backward=on(name), recompute=recompute)
        for number, name in enumerate(device.name for device in cluster.devices[:2])
    )
    plan = Plan(
        planner="test",
        schedule=schedule,
        num_microbatches=1,
        micro_batch_size=1,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=stages,
    )
    return Case(profile, cluster, plan)


def test_a_slow_link_and_devices_by_hand() -> None:
    # F 2 | 3 to d1 | F 2, B 2 | 3 back | B 2: 14 seconds. A link twice as fast saves 1.5, a device twice as fast 2.
    found = _helps(two_stages(num_microbatches=1))
    assert found == [
        Help("d0 computing twice as fast", 12.0),
        Help("d1 computing twice as fast", 12.0),
        Help("a link twice as fast from d0 to d1 (4 B/s)", 12.5),
        Help("a link twice as fast from d1 to d0 (4 B/s)", 12.5),
    ]
    text = (
        "What would help most, simulated with one change at a time: d0 computing twice as fast: 12.0 s (14.3 % less); "
        "then d1 computing twice as fast: 12.0 s (14.3 % less)."
    )
    assert help_sentences(found, 14.0, most=2) == [text]


def test_between_hosts_the_network_is_made_faster() -> None:
    wire = Wire(bandwidth=1.0)
    devices = tuple(Device(name=f"d{number}", host=f"h{number}", kind="k") for number in range(2))
    hosts = tuple(Host(name=f"h{number}", inside=wire) for number in range(2))
    cluster = Cluster(name="two", hosts=hosts, devices=devices, between=wire)
    # 1 + 8 + 1 + 2 + 8 + 2 seconds; the network saves 4 + 4.
    assert _helps(_case(cluster, cut_bytes=8))[0] == Help("a network twice as fast between hosts (2 B/s)", 14.0)
    shared = tuple(msgspec.structs.replace(host, interface_bandwidth=0.5) for host in hosts)
    slow = msgspec.structs.replace(cluster, hosts=shared)
    # The interfaces let half a byte a second through: 1 + 16 + 3 + 16 + 2, then 8 and 8.
    assert _helps(_case(slow, cut_bytes=8))[0] == Help("network interfaces twice as fast on h0 and h1", 22.0)


def test_replicas_are_made_faster_together() -> None:
    group = on("d0", "d1")
    case = two_stages(num_microbatches=1, groups=((group, group), (on("d2"), on("d2"))), num_devices=3)
    result = evaluate_costs(case.costs)
    texts = [change.text for change in changes(result.timeline, result.costs)]
    assert "d0 and d1 computing twice as fast" in texts
    assert not any(text.startswith("d0 computing") for text in texts)


def test_memory_where_recomputing_costs_time() -> None:
    # F 1 | F 1, R 1, B 2 | B 2 (d0 recomputes while it waits): 7 seconds, and 6 where nothing has to run again.
    case = _case(one_host(2, memory_bytes=10), recompute=True, saved_bytes=12)
    assert evaluate_costs(case.costs, within_memory=False).timeline.iteration_s == 7.0
    found = _helps(case)
    assert Help("2 B more memory on d0, and up to that on 1 other, so that nothing is recomputed", 6.0) in found
    roomy = _case(one_host(2, memory_bytes=1000), recompute=True, saved_bytes=12)
    assert Help("no recomputation, for which there is room", 6.0) in _helps(roomy)
    kept = _case(one_host(2, memory_bytes=1000), saved_bytes=12)
    assert all("twice as fast" in item.change for item in _helps(kept))


def test_nothing_helps_where_nothing_takes_time() -> None:
    assert help_sentences([], 1.0) == [
        "Nothing that was tried alone (a device or a link of the critical path twice as fast) would help."
    ]
    assert help_sentences([Help("x", 0.5)], 0.0) == help_sentences([], 1.0)


def test_every_figure_is_a_simulation() -> None:
    case = two_stages(num_microbatches=3)
    result = evaluate_costs(case.costs)
    by_text = {change.text: change.cluster for change in changes(result.timeline, result.costs)}
    for item in what_would_help(result.timeline, result.costs, case.profile):
        again = evaluate(case.plan, case.profile, by_text[item.change], strict=False)
        assert again.timeline.iteration_s == item.seconds
