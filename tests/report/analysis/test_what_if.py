"""Improvements of a cluster: the gains of single changes, derived by hand."""

import msgspec

from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.plan.types import Origin, Plan, Replica, Stage, on
from penstock.report.analysis.what_if import Improvement, find_improvements, improvement_sentences
from penstock.report.analysis.what_if_changes import changes
from penstock.simulate.evaluation import evaluate, evaluate_costs
from tests.support.small import equal_profile, hand_plan, one_host
from tests.support.strategies import Case, two_stages


def _improvements(case: Case) -> list[Improvement]:
    result = evaluate_costs(case.costs, within_memory=False)
    return find_improvements(result.timeline, result.costs, case.profile)


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
    improvements = _improvements(two_stages(num_microbatches=1))
    assert improvements == [
        Improvement("d0 computing twice as fast", 12.0),
        Improvement("d1 computing twice as fast", 12.0),
        Improvement("a link twice as fast from d0 to d1 (4 B/s)", 12.5),
        Improvement("a link twice as fast from d1 to d0 (4 B/s)", 12.5),
    ]
    text = (
        "The most effective changes, each simulated alone: d0 computing twice as fast: 12.0 s (14.3 % less); "
        "then d1 computing twice as fast: 12.0 s (14.3 % less)."
    )
    assert improvement_sentences(improvements, 14.0, most=2) == [text]


def test_between_hosts_the_network_is_made_faster() -> None:
    wire = Wire(bandwidth=1.0)
    devices = tuple(Device(name=f"d{number}", host=f"h{number}", kind="k") for number in range(2))
    hosts = tuple(Host(name=f"h{number}", inside=wire) for number in range(2))
    cluster = Cluster(name="two", hosts=hosts, devices=devices, between=wire)
    # 1 + 8 + 1 + 2 + 8 + 2 seconds; the network saves 4 + 4.
    best = _improvements(_case(cluster, cut_bytes=8))[0]
    assert best == Improvement("a network twice as fast between hosts (2 B/s)", 14.0)
    shared = tuple(msgspec.structs.replace(host, interface_bandwidth=0.5) for host in hosts)
    slow = msgspec.structs.replace(cluster, hosts=shared)
    # The interfaces let half a byte a second through: 1 + 16 + 3 + 16 + 2, then 8 and 8.
    best = _improvements(_case(slow, cut_bytes=8))[0]
    assert best == Improvement("network interfaces twice as fast on h0 and h1", 22.0)


def test_replicas_are_made_faster_together() -> None:
    group = on("d0", "d1")
    case = two_stages(num_microbatches=1, groups=((group, group), (on("d2"), on("d2"))), num_devices=3)
    result = evaluate_costs(case.costs)
    texts = [change.text for change in changes(result.timeline, result.costs)]
    assert "d0 and d1 computing twice as fast" in texts
    assert not any(text.startswith("d0 computing") for text in texts)


def _replicated(inside: float, between: float) -> Case:
    """One stage on three devices, two of them on one host. Each sends 4/3 x 30 bytes around the ring."""
    hosts = tuple(Host(name=name, inside=Wire(bandwidth=100.0)) for name in ("h0", "h1"))
    devices = tuple(Device(name=f"d{number}", host=f"h{number // 2}", kind="k") for number in range(3))
    pairs = (("d0", "d1"), ("d1", "d0"))
    links = tuple(Link(source=source, target=target, wire=Wire(bandwidth=inside)) for source, target in pairs)
    cluster = Cluster(name="two", hosts=hosts, devices=devices, between=Wire(bandwidth=between), links=links)
    profile, group = equal_profile(1, parameter_bytes=30), on("d0", "d1", "d2")
    stages = (Stage(start=0, stop=1, forward=group, backward=group),)
    return Case(profile, cluster, hand_plan(profile, cluster, stages, num_microbatches=1, rows=3))


def test_a_ring_over_two_hosts_waits_for_its_slowest_link() -> None:
    # One row each takes 3 s. The link inside h0 has 1 B/s: 40 s, and 20 s at 2 B/s. The network would take 10 s.
    improvements = _improvements(_replicated(inside=1.0, between=4.0))
    assert improvements[0] == Improvement("a link twice as fast from d0 to d1 (2 B/s)", 23.0)
    assert not any("network" in item.change for item in improvements)
    # The other way round the network takes 40 s, and 20 s at 2 B/s.
    improvements = _improvements(_replicated(inside=4.0, between=1.0))
    assert improvements[0] == Improvement("a network twice as fast between hosts (2 B/s)", 23.0)
    assert not any("link" in item.change for item in improvements)


def test_a_ring_inside_a_host_has_all_its_links_made_faster() -> None:
    profile, cluster, group = equal_profile(1, parameter_bytes=30), one_host(3), on("d0", "d1", "d2")
    stages = (Stage(start=0, stop=1, forward=group, backward=group),)
    case = Case(profile, cluster, hand_plan(profile, cluster, stages, num_microbatches=1, rows=3))
    assert _improvements(case)[0] == Improvement("links inside h twice as fast", 23.0)


def test_memory_where_recomputing_costs_time() -> None:
    # F 1 | F 1, R 1, B 2 | B 2 (d0 recomputes while it waits): 7 seconds, and 6 where nothing has to run again.
    case = _case(one_host(2, memory_bytes=10), recompute=True, saved_bytes=12)
    assert evaluate_costs(case.costs, within_memory=False).timeline.iteration_s == 7.0
    improvements = _improvements(case)
    change = "2 B more memory on d0 and up to as much on 1 other device, without recomputation"
    assert Improvement(change, 6.0) in improvements
    roomy = _case(one_host(2, memory_bytes=1000), recompute=True, saved_bytes=12)
    assert Improvement("no recomputation (memory suffices)", 6.0) in _improvements(roomy)
    kept = _case(one_host(2, memory_bytes=1000), saved_bytes=12)
    assert all("twice as fast" in item.change for item in _improvements(kept))


def test_nothing_helps_where_nothing_takes_time() -> None:
    assert improvement_sentences([], 1.0) == [
        "No simulated change (a device or a link of the critical path twice as fast) shortens the iteration."
    ]
    assert improvement_sentences([Improvement("x", 0.5)], 0.0) == improvement_sentences([], 1.0)


def test_every_figure_is_a_simulation() -> None:
    case = two_stages(num_microbatches=3)
    result = evaluate_costs(case.costs)
    by_text = {change.text: change.cluster for change in changes(result.timeline, result.costs)}
    for item in find_improvements(result.timeline, result.costs, case.profile):
        again = evaluate(case.plan, case.profile, by_text[item.change], strict=False)
        assert again.timeline.iteration_s == item.seconds


def test_a_faster_link_may_change_the_ring_of_a_reduction() -> None:
    """The reduction then stands elsewhere among the sends: where it stood, the devices would deadlock."""
    fast, slow = Wire(bandwidth=1e6), Wire(bandwidth=2.0)
    hosts = (Host(name="h0", inside=fast), Host(name="h1", inside=slow))
    homes = (("d0", "h0"), ("d1", "h0"), ("d2", "h1"), ("d3", "h1"))
    devices = tuple(Device(name=name, host=host, kind="k") for name, host in homes)
    cluster = Cluster(name="two", hosts=hosts, devices=devices, between=fast)
    profile = msgspec.structs.replace(equal_profile(1, parameter_bytes=100), input_bytes=10)
    forward, backward = (
        tuple(Replica(device, share) for device, share in zip(names, (0.4, 0.2, 0.4), strict=True))
        for names in (("d1", "d0", "d3"), ("d3", "d1", "d2"))
    )
    plan = Plan(
        planner="test",
        schedule="pe",
        num_microbatches=5,
        micro_batch_size=5,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=(Stage(start=0, stop=1, forward=forward, backward=backward, recompute=True),),
    )
    best = _improvements(Case(profile, cluster, plan))[0]
    assert best.change == "a link twice as fast from d3 to d2 (4 B/s)"
