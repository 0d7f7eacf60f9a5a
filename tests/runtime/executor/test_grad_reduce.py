"""The rings in which ranks add up."""

import pytest

from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.emulation.spec import Emulation
from penstock.launch.emulation import emulate
from penstock.plan.types import Origin, Plan, Stage, on
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.runtime.transport.process_groups import make_ring_groups
from tests.support.small_emulation import needs_shaping
from tests.support.undisturbed import must, undisturbed


def test_every_ring_has_one_group() -> None:
    asked: list[list[int]] = []

    def new_group(ranks: list[int], *, sort_ranks: bool) -> str:
        assert not sort_ranks
        asked.append(ranks)
        return str(len(asked))

    assert make_ring_groups([(0, 2, 1), (1, 3), (0, 2, 1), (0, 1, 2)], new_group) == ["1", "2", "1", "3"]
    # Gloo sends to the rank before: the other way round.
    assert asked == [[1, 2, 0], [3, 1], [2, 1, 0]]


def one_way(names: str) -> Emulation:
    """Three devices with links that are fast one way round only, in the order of these names; 6 MB to add up."""
    times = Times(kind="X", micro_batch_size=3, forward_s=0.003, input_grad_s=0.003, weight_grad_s=0.003)
    sizes = Sizes(micro_batch_size=3, cut_bytes=0, saved_bytes=0)
    unit = Unit(name="u", parameter_bytes=6_000_000, sizes=(sizes,), times=(times,))
    profile = Profile(name="one", micro_batch_size=3, units=(unit,))
    fast = zip(names, names[1:] + names[:1], strict=True)
    slow = Wire(bandwidth=5e6)
    cluster = Cluster(
        name="one way",
        hosts=(Host(name="h", inside=slow),),
        devices=tuple(Device(name=name, host="h", kind="X") for name in "abc"),
        between=slow,
        links=tuple(Link(source=a, target=b, wire=Wire(bandwidth=40e6)) for a, b in fast),
    )
    plan = Plan(
        planner="by hand",
        schedule="gpipe",
        num_microbatches=1,
        micro_batch_size=3,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=(Stage(start=0, stop=1, forward=on(*"abc"), backward=on(*"abc")),),
    )
    return Emulation(plan=plan, profile=profile, cluster=cluster, num_steps=2)


@needs_shaping
@pytest.mark.parametrize("names", ["abc", "acb"])
@undisturbed
def test_sums_go_round_the_best_ring(names: str) -> None:
    emulation = one_way(names)
    # 2/3 of 6 MB twice over links of 40 MB/s; the other way round it would take 1.6 s.
    predicted_s = emulation.evaluation.timeline.iteration_s
    assert predicted_s == pytest.approx(0.003 + 8e6 / 40e6)
    found = emulate(emulation)
    must(found.failure is None, found.log)
    assert found.timelines[0].iteration_s == pytest.approx(predicted_s, rel=0.25)
