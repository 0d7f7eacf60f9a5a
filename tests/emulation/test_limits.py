"""The checks whether this machine kept up. Measured timelines are those of a cluster with another link."""

import msgspec
import pytest

from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.emulation.clock import Lateness
from penstock.emulation.limits import find_limits
from penstock.emulation.spec import Emulation
from penstock.plan.types import Origin, Plan, Stage, on
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.timeline import Timeline
from penstock.units import show_percent

NUM_MICROBATCHES = 4
PUNCTUAL = Lateness(num_jobs=10, asleep_s=1.0)


def two_devices(
    rate: float = 1e9, *, back: float = 1e9, message_bytes: int = 100_000_000, slow_down: float = 1.0
) -> Emulation:
    """Two stages of 10 ms a pass. Activations are sent at `rate` bytes per second, gradients at `back`."""
    times = Times(kind="X", micro_batch_size=1, forward_s=0.01, input_grad_s=0.005, weight_grad_s=0.005, step_s=0.0)
    sizes = Sizes(micro_batch_size=1, cut_bytes=message_bytes, saved_bytes=0)
    units = tuple(Unit(name=name, parameter_bytes=4, sizes=(sizes,), times=(times,)) for name in "xy")
    profile = Profile(name="two", micro_batch_size=1, units=units, input_bytes=1000)
    cluster = Cluster(
        name="two",
        hosts=tuple(Host(name=name, inside=Wire(bandwidth=1e9)) for name in "ab"),
        devices=tuple(Device(name=f"d{number}", host="ab"[number], kind="X") for number in range(2)),
        between=Wire(bandwidth=rate),
        links=(Link(source="d1", target="d0", wire=Wire(bandwidth=back)),),
    )
    plan = Plan(
        planner="by hand",
        schedule="gpipe",
        num_microbatches=NUM_MICROBATCHES,
        micro_batch_size=1,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=(
            Stage(start=0, stop=1, forward=on("d0"), backward=on("d0")),
            Stage(start=1, stop=2, forward=on("d1"), backward=on("d1")),
        ),
    )
    return Emulation(plan=plan, profile=profile, cluster=cluster, slow_down=slow_down)


def limits(
    emulation: Emulation,
    measured: Timeline | None = None,
    *,
    busy: tuple[float, ...] = (0.1, 0.1),
    lateness: tuple[Lateness, ...] = (PUNCTUAL, PUNCTUAL),
) -> list[str]:
    timeline = emulation.evaluation.timeline if measured is None else measured
    return find_limits(emulation, [timeline] * len(busy), busy, [lateness] * len(busy))


def test_a_machine_that_keeps_up_has_no_limits() -> None:
    assert limits(two_devices()) == []
    assert find_limits(two_devices(), [], [], []) == []


def test_the_busiest_iteration_counts() -> None:
    assert limits(two_devices(), busy=(0.7, 0.2)) == []
    assert limits(two_devices(), busy=(0.2, 0.75, 0.2)) == ["the ranks used 75.0 % of this machine's CPUs"]


def test_the_latest_rank_counts_relative_to_its_actions() -> None:
    absent = Lateness()
    assert limits(two_devices(), lateness=(absent, Lateness(10, 1.0, woken_s=0.02))) == []
    # The second rank is late by more seconds, the third by more of its actions.
    late = (PUNCTUAL, Lateness(10, 10.0, woken_s=0.25), Lateness(5, 1.0, woken_s=0.05), absent)
    assert limits(two_devices(), lateness=late) == ["a rank woke up 10.0 ms late from actions of 200 ms, on average"]


@pytest.mark.parametrize("slow_down", [1.0, 4.0])
def test_the_runtime_may_take_a_hundredth_of_an_iteration(slow_down: float) -> None:
    emulation = two_devices(slow_down=slow_down)
    iteration_s = emulation.evaluation.timeline.iteration_s * slow_down
    assert limits(emulation, lateness=(PUNCTUAL, Lateness(10, 1.0, overrun_s=0.0099 * iteration_s))) == []
    assert limits(emulation, lateness=(Lateness(10, 1.0, overrun_s=0.05 * iteration_s), PUNCTUAL)) == [
        "the runtime took longer than its actions, by 5.0 % of an iteration"
    ]


@pytest.mark.parametrize(
    ("slow_down", "shaped", "best"), [(1.0, "1.00 GB/s", "500 MB/s"), (2.0, "500 MB/s", "250 MB/s")]
)
def test_a_link_that_does_not_reach_its_bandwidth(slow_down: float, shaped: str, best: str) -> None:
    emulation = two_devices(slow_down=slow_down)
    measured = two_devices(back=0.5e9).evaluation.timeline
    # Each gradient takes 0.1 s longer than it should, and d0 waits for all of them.
    share = show_percent(NUM_MICROBATCHES * 0.1 / measured.iteration_s)
    expected = (
        f"the link from d1 to d0 is shaped to {shaped}, but no message exceeded {best}, "
        f"which costs up to {share} of an iteration"
    )
    assert limits(emulation, measured) == [expected]
    # Several iterations are not added up; one in which the link reaches its bandwidth shows that it can.
    assert limits(emulation, measured, busy=(0.1,) * 3, lateness=(PUNCTUAL, PUNCTUAL)) == [expected]
    both = [measured, emulation.evaluation.timeline]
    assert find_limits(emulation, both, [0.1, 0.1], [[PUNCTUAL]] * 2) == []


def test_the_link_that_costs_most_is_named() -> None:
    (text,) = limits(two_devices(), two_devices(0.25e9, back=0.5e9).evaluation.timeline)
    assert text.startswith("the link from d0 to d1 is shaped to 1.00 GB/s, but no message exceeded 250 MB/s")
    (text,) = limits(two_devices(), two_devices(0.5e9, back=0.25e9).evaluation.timeline)
    assert text.startswith("the link from d1 to d0 is shaped to 1.00 GB/s, but no message exceeded 250 MB/s")


def test_links_are_checked_only_where_bandwidth_shows() -> None:
    # Any idle machine reaches 200 MB/s.
    slow = two_devices(200e6, back=200e6, message_bytes=20_000_000)
    assert limits(slow, two_devices(50e6, back=50e6, message_bytes=20_000_000).evaluation.timeline) == []
    # The duration of small messages says nothing about bandwidth.
    for message_bytes, is_checked in ((990_000, False), (1_000_000, True)):
        measured = two_devices(20e6, back=20e6, message_bytes=message_bytes).evaluation.timeline
        assert bool(limits(two_devices(message_bytes=message_bytes), measured)) == is_checked
    # Loopback is not shaped.
    unshaped = two_devices()
    measured = two_devices(back=0.5e9).evaluation.timeline
    assert limits(msgspec.structs.replace(unshaped, is_shaped=False), measured) == []


def test_only_messages_that_a_device_waits_for_are_counted() -> None:
    # Each message takes 5 ms instead of 1 ms, and each pass 10 ms: d1 waits for the first message only.
    measured = two_devices(0.2e9, message_bytes=1_000_000).evaluation.timeline
    (text,) = limits(two_devices(message_bytes=1_000_000), measured)
    assert text.startswith("the link from d0 to d1 is shaped to 1.00 GB/s, but no message exceeded 200 MB/s")
    assert text.endswith(f"which costs up to {show_percent(0.004 / measured.iteration_s)} of an iteration")
