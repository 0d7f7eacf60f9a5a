"""No planner returns a plan that breaks a restriction of the layers, and each says which layer it is."""

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster
from penstock.errors import InputError, ProofError
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Plan
from penstock.planners.api import plan
from penstock.planners.joined_layers import join_layers
from penstock.planners.problem import Problem
from penstock.planners.registry import PLANNERS
from penstock.profile.restrictions import Restriction
from penstock.profile.types import Profile
from penstock.program.actions import Kind
from penstock.simulate.evaluation import evaluate
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import clusters, profiles
from tests.support.thoroughness import examples

RULES = ("sync_replicas", "one_replica", "one_stage", "same_replicas", "no_recompute", "no_transfer", "fused_backward")


@st.composite
def restricted_profiles(draw: st.DrawFn) -> Profile:
    profile = draw(profiles())
    units = st.integers(0, profile.num_units - 1)
    rules = RULES if profile.num_units > 1 else [rule for rule in RULES if rule != "one_stage"]
    items = []
    for rule in draw(st.lists(st.sampled_from(rules), min_size=1, max_size=3)):
        chosen = draw(st.lists(units, unique=True, min_size=2 if rule == "one_stage" else 1, max_size=4))
        items.append(Restriction(rule=rule, units=tuple(chosen)))  # type: ignore[arg-type]
    return msgspec.structs.replace(profile, restrictions=tuple(items))


def is_met(item: Restriction, planned: Plan, kinds: dict[int, set[Kind]], profile: Profile) -> bool:
    """The rules in their plainest form, without those about the order of replicas."""
    stage_of = [number for number, stage in enumerate(planned.stages) for _ in range(stage.start, stage.stop)]
    rules = [other for other in profile.restrictions if other.rule == "no_recompute"]
    repeated = {planned.stages[stage_of[unit]] for other in rules for unit in other.units}
    stages = [planned.stages[stage_of[unit]] for unit in item.units]
    match item.rule:
        case "one_stage":
            return len({stage_of[unit] for unit in item.units}) == 1
        case "one_replica":
            return all(len(stage.forward) == 1 for stage in stages)
        case "no_recompute":
            return not any(stage.recompute for stage in stages)
        case "no_transfer":
            return not any(stage.forward != stage.backward for stage in set(stages) & repeated)
        case "fused_backward":
            return not any(Kind.I in kinds.get(stage_of[unit], ()) for unit in item.units)
        case "same_replicas":
            follow = [
                (planned.stages[stage_of[unit]], planned.stages[stage_of[unit + 1]])
                for unit in item.units
                if unit + 1 < len(stage_of)
            ]
            return all([one.share for one in a.forward] == [two.share for two in b.forward] for a, b in follow)
        case _:
            return True


@reaches(planned=0.3, refused=0.02, replicated=0.05)
@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(
    profile=restricted_profiles(),
    cluster=clusters(max_devices=4, fast=True),
    planner=st.sampled_from(sorted(PLANNERS)),
    num=st.integers(1, 4),
)
def test_plans_meet_what_layers_require(profile: Profile, cluster: Cluster, planner: str, num: int) -> None:
    try:
        planned = plan(profile, cluster, num, planner=planner, **({"work": 20} if planner == "auto" else {}))  # type: ignore[arg-type]
    except InputError:
        # Auto always has a plan: one device for each stage, or for all layers.
        assert planner != "auto"
        reach("refused")
        return
    reach("planned")
    if any(len(stage.forward) > 1 for stage in planned.stages):
        reach("replicated")
    result = evaluate(planned, profile, cluster, within_memory=False)
    kinds: dict[int, set[Kind]] = {}
    for kind, stage in zip(result.program.kind.tolist(), result.program.stage.tolist(), strict=True):
        kinds.setdefault(stage, set()).add(Kind(kind))
    for item in profile.restrictions:
        assert is_met(item, planned, kinds, profile), item


@reaches(refused=0.1, accepted=0.1)
@examples(100)
@given(profile=restricted_profiles(), cluster=clusters(max_devices=4), seed=st.integers(0, 3))
def test_the_proof_refuses_exactly_what_breaks_a_rule(profile: Profile, cluster: Cluster, seed: int) -> None:
    """Plans that were made without the restrictions."""
    name = ("data_parallel", "bipartition", "pipedream", "spp")[seed]
    free = msgspec.structs.replace(profile, restrictions=())
    try:
        planned = plan(free, cluster, 2, planner=name, schedule="1f1b", recompute=seed == 1)
    except InputError:  # a device too slow to take any rows
        return
    costs = price(planned, profile, cluster, strict=False)
    expected = all(is_met(item, planned, {}, profile) for item in profile.restrictions)
    reach("accepted" if expected else "refused")
    assert (costs.restrictions.violation is None) == expected
    if not expected:
        with pytest.raises(ProofError, match="layer"):
            evaluate(planned, profile, cluster, strict=False, within_memory=False)


def test_joined_layers_have_the_costs_of_their_layers() -> None:
    rule = Restriction(rule="one_stage", units=(1, 3), reason="they share a buffer")
    profile = msgspec.structs.replace(equal_profile(5), restrictions=(rule,))
    joined = join_layers(Problem(profile, one_host(2), 4))
    assert joined is not None
    assert joined.cuts == (0, 1, 4, 5)
    part = joined.problem.profile.units[1]
    assert part.times[0].forward_s == 3 * profile.units[0].times[0].forward_s
    assert part.parameter_bytes == 3 * profile.units[0].parameter_bytes
    assert part.sizes[0].cut_bytes == profile.units[3].sizes[0].cut_bytes
    assert part.sizes[0].saved_bytes == 3 * profile.units[0].sizes[0].saved_bytes
    for planner in PLANNERS:
        planned = plan(profile, one_host(2), 4, planner=planner)
        assert planned.profile.digest == profile.digest
        assert len(planned.layers) == 5
        assert planned.has_order
    with pytest.raises(InputError, match=r"number of stages \(4\) must be at most 3, because layers 'u?\S*1' to"):
        plan(profile, one_host(4), 4, planner="balanced", pipeline_depth=4)
