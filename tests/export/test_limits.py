"""What an engine cannot say is found, by name and with the switch that plans without it."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.errors import InputError
from penstock.export import ENGINES, export_plan, find_engine, obstacles_to, restrict, with_equal_orders
from penstock.export.limits import find_obstacles
from penstock.export.subject import make_subject
from penstock.plan import Shape
from penstock.planners import Problem, order_plan
from penstock.planners.api import plan as make_best_plan
from penstock.planners.search_space import SearchSpace
from penstock.profile import allowed_cuts, layer_roles
from penstock.simulate import evaluate_costs
from tests.support.exports import block_names, devices, make_plan, named_profile, obstacles
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases

FOUR = devices(4)
BLOCKS = named_profile(block_names(4), architecture="llama")
TIED = named_profile(
    block_names(4), ties=[penstock.Tie(name="table", parameter_bytes=4, units=(0, len(block_names(4)) - 1))]
)


@pytest.mark.parametrize(
    ("feature", "switch", "cuts", "groups", "options"),
    [
        ("two sets of cuts", "--one-cut", [0, 5, 10], ["d0", "d1"], {"backward": [["d0"], ["d0"]]}),
        ("unequal replicas", "--equal-replicas", [0, 5, 10], ["d0,d1", "d2"], {}),
        ("parts of rows", "--whole-rows, or another --micro-batch-size", [0, 10], ["d0,d1,d2"], {}),
        ("map of stages to devices", "--no-virtual-stages", [0, 3, 10], ["d0,d1", "d1,d2"], {}),
        ("cuts inside blocks", "--whole-blocks", [0, 4, 10], ["d0", "d1"], {}),
        ("recomputation", "--no-recomputation", [0, 5, 10], ["d0", "d1"], {"recompute": [1]}),
    ],
)
def test_torch_cannot_say(
    feature: str, switch: str, cuts: list[int], groups: list[str], options: dict[str, Any]
) -> None:
    plan = make_plan(BLOCKS, FOUR, cuts, [group.split(",") for group in groups], **options)
    assert obstacles(plan, BLOCKS, FOUR, "torch") == {feature: switch}


def test_torch_can_say_any_map_and_order() -> None:
    plan = make_plan(BLOCKS, FOUR, [0, 3, 5, 7, 10], [["d1"], ["d0"], ["d0"], ["d1"]], schedule="auto")
    assert obstacles(plan, BLOCKS, FOUR, "torch") == {}


def test_tied_stages_are_refused_unless_they_are_one() -> None:
    plan = make_plan(TIED, FOUR, [0, 5, 10], [["d0"], ["d1"]])
    assert obstacles(plan, TIED, FOUR, "torch") == {"tied parameters": "--untied"}
    assert obstacles(make_plan(TIED, FOUR, [0, 10], [["d0"]]), TIED, FOUR, "torch") == {}


def test_the_refusal_names_everything_and_the_way_out() -> None:
    plan = make_plan(TIED, FOUR, [0, 4, 10], [["d0"], ["d1"]], recompute=[0])
    with pytest.raises(InputError) as caught:
        export_plan(penstock.evaluate(plan, TIED, FOUR), TIED, "torch")
    text = str(caught.value)
    for part in ("'block.1.mlp', inside a block (--whole-blocks)", "stage 0 is recomputed", "'table'"):
        assert part in text
    assert "penstock plan --engine torch --untied" in text


def test_an_unknown_engine() -> None:
    with pytest.raises(InputError, match="unknown engine 'torhc'"):
        find_engine("torhc")


@pytest.mark.parametrize("engine", list(ENGINES))
def test_plans_within_the_limits_have_no_obstacles(engine: str) -> None:
    """Auto plans unequal devices and recomputes; in the search space of the engine, the engine can run the result."""
    memory = [150, 400, 400, 400]
    cluster = msgspec.structs.replace(
        FOUR,
        devices=tuple(
            msgspec.structs.replace(device, memory_bytes=size, speed=1.0 + 0.2 * number)
            for number, (device, size) in enumerate(zip(FOUR.devices, memory, strict=True))
        ),
    )
    profile = msgspec.structs.replace(BLOCKS, micro_batch_size=4)
    limits = ENGINES[engine].limits
    search_space = restrict(SearchSpace(), limits)
    for num_microbatches in (4, 6):
        plan = make_best_plan(
            profile, cluster, num_microbatches, micro_batch_size=4, search_space=search_space, work=60, cuts=limits.cuts
        )
        solution = with_equal_orders(order_plan(plan, Problem(profile, cluster, num_microbatches)))
        found = evaluate_costs(solution.costs, program=solution.program, within_memory=False)
        assert obstacles_to(found, profile, engine) == ()


def test_replicas_on_unequal_devices_get_one_order() -> None:
    """The schedule orders every device by itself: a slow replica defers other weight gradients than a fast one."""
    slow = {"d1": 0.4, "d2": 0.7}
    cluster = msgspec.structs.replace(
        FOUR,
        devices=tuple(
            msgspec.structs.replace(device, speed=slow.get(device.name, 1.0), memory_bytes=None)
            for device in FOUR.devices
        ),
    )
    plan = make_plan(BLOCKS, cluster, [0, 5, 10], [["d0", "d1"], ["d2", "d3"]], schedule="auto", num_microbatches=8)
    solution = order_plan(plan, Problem(BLOCKS, cluster, 8))
    before = {name: list(solution.program.actions(name)) for name in ("d0", "d1")}
    assert before["d0"] != before["d1"]
    equal = with_equal_orders(solution)
    after = {name: list(equal.program.actions(name)) for name in equal.program.devices}
    assert after["d0"] == after["d1"] == before["d0"]
    assert after["d2"] == after["d3"]
    found = evaluate_costs(equal.costs, program=equal.program)
    assert obstacles_to(found, BLOCKS, "torch") == ()
    again = penstock.evaluate(equal.plan, BLOCKS, cluster)
    assert again.timeline.iteration_s == found.timeline.iteration_s
    assert with_equal_orders(equal) is equal


@reaches(allowed=0.05, refused=0.2)
@given(case=cases(), data=st.data())
def test_a_plan_is_in_the_search_space_exactly_if_the_engine_can_run_it(case: Case, data: st.DataObject) -> None:
    """The two ways to say the same: `SearchSpace.allow`, and the obstacles except cuts, ties and orders."""
    profile, cluster, plan = case.profile, case.cluster, case.plan
    limits = replace(
        ENGINES["torch"].limits,
        shapes=data.draw(st.sampled_from([None, frozenset(Shape), frozenset({Shape.STRAIGHT})])),
        replicas=data.draw(st.sampled_from(["equal", "unequal"])),
        recompute=data.draw(st.sampled_from(["none", "all", "stage"])),
        part_rounds=data.draw(st.booleans()),
    )
    evaluation = penstock.evaluate(plan, profile, cluster, within_memory=False)
    others = {"tied parameters", "orders of replicas", "order of actions", "split backward"}
    subject = make_subject(evaluation, profile)
    found = [item for item in find_obstacles(subject, limits, None) if item.feature not in others]
    is_deep_v = any("the V has" in item.what for item in found)
    allowed = restrict(SearchSpace(), limits).allow(plan, cluster, recompute=False)
    reach("allowed", allowed)
    reach("refused", not allowed)
    if not is_deep_v:
        assert allowed == (not found), found


def test_cuts_of_the_profile() -> None:
    names = ["wte", "wpe", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp", "norm", "head"]
    roles = layer_roles(names)
    assert allowed_cuts(roles, "layers") == tuple(range(9))
    assert allowed_cuts(roles, "blocks") == (0, 1, 2, 4, 6, 7, 8)
    assert allowed_cuts(roles, "whole") == (0, 2, 4, 6, 8)
    assert allowed_cuts(roles, "between") == (0, 4, 8)
    assert allowed_cuts(layer_roles(["a", "b"]), "whole") == (0, 1, 2)


@pytest.mark.parametrize("planner", list(penstock.PLANNERS))
def test_every_planner_keeps_blocks_whole(planner: str) -> None:
    options: dict[str, Any] = {"work": 20} if planner == "auto" else {}
    plan = penstock.plan(BLOCKS, FOUR, 4, planner=planner, cuts="whole", **options)
    assert {stage.start for stage in plan.stages} <= {0, 1, 3, 5, 7, 9}
    assert [layer.name for layer in plan.layers] == [unit.name for unit in BLOCKS.units]
    assert all(left.stop == right.start for left, right in pairwise(plan.stages))


def test_more_stages_than_blocks_are_refused() -> None:
    with pytest.raises(
        InputError, match="number of stages \\(4\\) must be at most 3, because stages have whole blocks"
    ):
        penstock.plan(named_profile(block_names(1)), FOUR, 4, planner="balanced", cuts="whole", pipeline_depth=4)
