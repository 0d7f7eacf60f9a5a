"""How transfers share an interface, by hand: what passes at once, and what a slower one leaves to the others."""

import numpy as np
import pytest

from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.plan.types import Origin, Plan, Stage, on
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.simulate.evaluation import Evaluation, evaluate
from penstock.simulate.reference import simulate_plainly

ALMOST = 2e-3
"""Who begins first has a thousandth more than the next."""


def fan_out(bandwidths: dict[str, float], interface: float) -> Evaluation:
    """d0 works for 1 second, then sends 12 bytes to each of d1, d2 and d3 over the interface of its host."""
    times = Times(kind="k", micro_batch_size=3, forward_s=1.0, input_grad_s=0.0, weight_grad_s=0.0)
    sizes = Sizes(micro_batch_size=3, cut_bytes=36, saved_bytes=0)
    units = tuple(Unit(name=name, parameter_bytes=0, sizes=(sizes,), times=(times,)) for name in "xy")
    profile = Profile(name="fan", micro_batch_size=3, units=units)
    inside = Wire(bandwidth=1.0)
    devices = tuple(Device(name=f"d{number}", host="abbb"[number], kind="k") for number in range(4))
    cluster = Cluster(
        name="fan",
        hosts=(Host(name="a", inside=inside, interface_bandwidth=interface), Host(name="b", inside=inside)),
        devices=devices,
        between=Wire(bandwidth=100.0),
        links=tuple(Link(source="d0", target=name, wire=Wire(bandwidth=rate)) for name, rate in bandwidths.items()),
    )
    plan = Plan(
        planner="test",
        schedule="gpipe",
        num_microbatches=1,
        micro_batch_size=3,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=(
            Stage(start=0, stop=1, forward=on("d0"), backward=on("d0")),
            Stage(start=1, stop=2, forward=on("d1", "d2", "d3"), backward=on("d1", "d2", "d3")),
        ),
    )
    return evaluate(plan, profile, cluster)


def ends(found: Evaluation) -> list[float]:
    """When what d0 sends has passed; the plain simulator says the same."""
    program = found.program
    plain = simulate_plainly(program, found.costs)
    assert np.array_equal(found.timeline.end_s, plain[1])
    names = [f"0SEND_F0@d{peer} on d0" for peer in (1, 2, 3)]
    places = {program.name(place): place for place in range(program.num_actions)}
    return [float(found.timeline.end_s[places[name]]) for name in names]


def test_all_get_the_same() -> None:
    # 36 bytes at 6 bytes a second: 6 seconds after the forward.
    assert ends(fan_out({}, 6.0)) == pytest.approx([7.0, 7.0, 7.0], rel=ALMOST)


def test_what_a_slow_link_leaves_goes_to_the_others() -> None:
    # d1 gets 1 byte a second over its link and leaves 5 to d2 and d3, which need 12 / 2.5 seconds. Then it has the
    # interface alone, and is no faster for that.
    assert ends(fan_out({"d1": 1.0}, 6.0)) == pytest.approx([13.0, 1 + 12 / 2.5, 1 + 12 / 2.5], rel=ALMOST)


def test_who_is_left_gets_more() -> None:
    # 2 bytes a second each, of which d1's link takes 1.5: that leaves 4.5 for two, which end after 12 / 2.25 seconds.
    assert ends(fan_out({"d1": 1.5}, 6.0)) == pytest.approx([1 + 12 / 1.5, 1 + 12 / 2.25, 1 + 12 / 2.25], rel=ALMOST)


def test_who_began_first_is_ahead() -> None:
    one, two, three = ends(fan_out({}, 6.0))
    assert one < two < three == pytest.approx(7.0)


def test_nobody_waits_where_there_is_room() -> None:
    assert ends(fan_out({"d1": 1.0, "d2": 2.0, "d3": 3.0}, 6.0)) == pytest.approx([13.0, 7.0, 5.0], rel=ALMOST)
