"""The trained model is compared with the profiled one: one warning, and correct results."""

import pytest
import torch
from msgspec.structs import replace

from penstock.cluster.types import Cluster
from penstock.model.blocks import find_blocks
from penstock.plan.types import Origin, Plan, planned_layers
from penstock.profile.types import Profile
from penstock.profiler.measurement import measure
from penstock.runtime.verify.plain_reference import reference_step
from tests.support.runtime.other_shapes import Shape, loss, make_model, refusal, train
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of
from tests.support.small import one_host

torch.set_num_threads(1)


def profiled_plan() -> tuple[Profile, Cluster, Plan]:
    """A profile of 4 rows of 5 positions, 4 bytes per number, and a plan for two devices of the measured kind."""
    profile = measure(make_model(), torch.ones(4, 5, 8), loss, targets=torch.zeros(4), seconds=0)
    cluster = one_host(2, bandwidth=1e9)
    cluster = replace(cluster, devices=tuple(replace(item, kind=profile.kinds[0]) for item in cluster.devices))
    plan = replace(
        plan_of([0, 2, 4], [["d0"], ["d1"]], num_microbatches=2),
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
    )
    return profile, cluster, plan


CONSEQUENCE = (
    "Training results are correct, but predicted times and memory hold for the profile. Profile the model again with "
    "these inputs"
)


@pytest.mark.parametrize(
    ("dtype", "shapes", "bf16", "first", "second"),
    [
        (torch.float32, [(8, 5, 8), (7, 5, 8), (5, 5, 8)], False, "", ""),
        # 8 rows x 3 positions x 8 numbers x 4 bytes, and with 5 positions.
        (
            torch.float32,
            [(8, 5, 8), (8, 3, 8), (8, 2, 8)],
            False,
            "8 rows of the inputs take 768 B, but 1.28 kB in the",
            "",
        ),
        # (8 x 16 + 16) x 8 bytes, and x 4.
        (
            torch.float64,
            [(8, 5, 8)],
            False,
            "the parameters of layer '0' take 1.15 kB, but those of '0' take 576 B in the profile",
            "",
        ),
        # 4 rows x 5 positions x 16 numbers, of 2 and of 4 bytes.
        (
            torch.float32,
            [(8, 5, 8)],
            True,
            "the activations after layer '1' take 640 B for 4 rows, but 1.28 kB in the profile",
            "",
        ),
    ],
    ids=["as profiled", "shorter", "doubles", "autocast"],
)
def test_one_warning_for_a_difference(
    rank_pool: RankPool, dtype: torch.dtype, shapes: list[Shape], bf16: bool, first: str, second: str
) -> None:
    ranks = rank_pool.run(2, train, *profiled_plan(), dtype, shapes, bf16)
    for (messages, losses), expected in zip(ranks, (first, second), strict=True):
        assert len(messages) == bool(expected)
        for text in messages:
            assert text.startswith(f"the trained model differs from the profiled one: {expected}")
            assert CONSEQUENCE in text
            assert ("under the same autocast" in text) == bf16
        model = make_model().to(dtype)
        for step, (shape, one) in enumerate(zip(shapes, losses, strict=True)):
            batch = torch.ones(shape, dtype=dtype), torch.zeros(shape[0], dtype=dtype)
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                assert torch.equal(one, reference_step(model, find_blocks(model), 2, loss, *batch, step=step))


def test_another_model_is_refused_with_the_plan_alone(rank_pool: RankPool) -> None:
    profile, _, plan = profiled_plan()
    plan = replace(plan, layers=planned_layers(profile))
    for text in rank_pool.run(2, refusal, plan, 24):
        # (8 x 24 + 24) x 4 bytes, and (8 x 16 + 16) x 4.
        assert "layer '0' of this model has 864 B of parameters, but it has 576 B in the plan's profile" in text
        assert "Profile this model" in text
