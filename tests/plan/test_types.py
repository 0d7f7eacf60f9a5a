"""Plans as values and as files: what is refused, round trips, and damaged files."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import io
from penstock.errors import FileError, InputError
from penstock.plan.pricing.pricing import price
from penstock.plan.shapes import Shape
from penstock.plan.types import Replica, Stage, load_plan, on, save_plan
from penstock.program.order import with_order
from penstock.schedules.registry import schedule
from tests.support.damaged_files import mutated
from tests.support.fuzzing import NUM_DAMAGED
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, reach_features, two_stages
from tests.support.thoroughness import examples

CASE = two_stages(num_microbatches=2)


def test_what_a_plan_says_of_itself() -> None:
    plan = CASE.plan
    assert (plan.num_stages, plan.num_units, plan.devices) == (2, 2, ("d0", "d1"))
    moved = two_stages(num_microbatches=1, groups=((on("d2"), on("d0")), (on("d1", "d0"), on("d1", "d0")))).plan
    assert moved.devices == ("d2", "d0", "d1")
    assert [stage.has_remote_backward for stage in moved.stages] == [True, False]
    assert [stage.num_replicas for stage in moved.stages] == [1, 2]


def test_equal_shares() -> None:
    assert on("x") == (Replica("x", 1.0),)
    assert [replica.share for replica in on("x", "y", "z")] == [1 / 3] * 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": 1, "stop": 1}, "is empty"),
        ({"start": 2, "stop": 1}, "is empty"),
        ({"forward": ()}, "the forward group is empty"),
        ({"backward": ()}, "the backward group is empty"),
        ({"forward": (Replica("d0", 0.5), Replica("d0", 0.5))}, "group has a duplicate device"),
        ({"forward": (Replica("d0", 0.5),)}, "add up to 0.5, not to 1"),
        ({"forward": (Replica("d0", float("nan")),)}, "must be above"),
        ({"forward": on("d0", "d1")}, "must have the same shares, in the same order"),
        ({"forward": (Replica("d0", 2.0), Replica("d1", -1.0))}, "must be above 1e-09"),
        # Nobody's rows would meet anybody's: overlaps() leaves out what is within rounding.
        ({"forward": (Replica("d0", 1.0), Replica("d1", 1e-10))}, "must be above 1e-09"),
    ],
)
def test_stages_that_cannot_be(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"start": 0, "stop": 1, "forward": on("d0"), "backward": on("d0")}
    Stage(**good)
    with pytest.raises(ValueError, match=message):
        Stage(**(good | change))


@pytest.mark.parametrize(
    ("stages", "message"),
    [([], "at least one stage"), ([(1, 2)], "starts at layer 1, not at 0"), ([(0, 1), (2, 3)], "at layer 2, not at 1")],
)
def test_plans_that_cannot_be(stages: list[tuple[int, int]], message: str) -> None:
    parts = tuple(Stage(start=start, stop=stop, forward=on("d0"), backward=on("d0")) for start, stop in stages)
    with pytest.raises(ValueError, match=message):
        msgspec.structs.replace(CASE.plan, stages=parts)


@reaches(replicated=0.05, remote=0.05, recompute=0.05, split=0.05, ordered=0.05, without_order=0.05)
@examples(80)
@given(case=cases(), ordered=st.sampled_from([True, False]))
def test_round_trip(case: Case, ordered: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "plan.json"
    plan = with_order(case.plan, schedule(case.costs)) if ordered else case.plan
    save_plan(plan, path)
    found = load_plan(path)
    assert found == plan
    assert found.digest == plan.digest
    save_plan(found, path.with_suffix(".again"))
    assert path.read_bytes() == path.with_suffix(".again").read_bytes()
    reach_features(case)
    reach("ordered" if ordered else "without_order")


def test_equal_plans_have_equal_digests() -> None:
    again = two_stages(num_microbatches=2).plan
    assert again.digest == CASE.plan.digest
    assert two_stages(num_microbatches=3).plan.digest != CASE.plan.digest


def changed(tmp_path: Path, change: Any) -> Path:
    path = tmp_path / "plan.json"
    value = json.loads(io.encode_json(CASE.plan))
    change(value)
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize(
    ("change", "message", "where"),
    [
        (lambda value: value.update(format="penstock.plan/9"), "the key \"format\" must be 'penstock.plan/3'", ""),
        (lambda value: value.pop("format"), "but is missing", ""),
        (lambda value: value.update(colour="red"), "unknown field `colour`", ""),
        (lambda value: value.pop("planner"), "missing required field `planner`", ""),
        (lambda value: value.update(num_microbatches=0), ">= 1", "$.num_microbatches"),
        (lambda value: value.update(num_microbatches=2**16 + 1), "<= 65536", "$.num_microbatches"),
        (lambda value: value.update(micro_batch_size=0), ">= 1", "$.micro_batch_size"),
        (lambda value: value.update(micro_batch_size=2**40 + 1), "<= 1099511627776", "$.micro_batch_size"),
        (lambda value: value["stages"][1].update(start=0), "starts at layer 0, not at 1", ""),
        (lambda value: value["stages"][1]["forward"][0].update(share=0), "> 0", "$.stages[1].forward[0].share"),
        (lambda value: value["stages"][0].update(recompute="yes"), "Expected `bool`", "$.stages[0].recompute"),
        (lambda value: value["stages"].clear(), "at least one stage", ""),
    ],
)
def test_refused(tmp_path: Path, change: Any, message: str, where: str) -> None:
    path = changed(tmp_path, change)
    with pytest.raises(InputError) as caught:
        load_plan(path)
    assert message in caught.value.what
    assert caught.value.where == (f"{path}, at {where}" if where else str(path))
    assert caught.value.hint


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file"):
        load_plan(tmp_path / "none.json")


@reaches(loaded=0.02, refused=0.2)
@settings(max_examples=NUM_DAMAGED, deadline=None)
@given(data=st.data())
def test_fuzz(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed-plan.json"
    path.write_bytes(data.draw(mutated(io.encode_json(CASE.plan))))
    try:
        plan = load_plan(path)
        costs = price(plan, CASE.profile, CASE.cluster, strict=False)
    except InputError:
        reach("refused")
        return
    reach("loaded")
    assert costs.num_microbatches == plan.num_microbatches
    save_plan(plan, path)
    assert load_plan(path) == plan


def test_shapes() -> None:
    assert Shape.STRAIGHT.stage_devices(4, 1) == [0, 1, 2, 3]
    assert Shape.LOOP.stage_devices(3, 3) == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert Shape.V.stage_devices(3, 2) == [0, 1, 2, 2, 1, 0]
    assert Shape.V.stage_devices(2, 3) == [0, 1, 1, 0, 0, 1]


def test_a_plan_is_a_value() -> None:
    plan = CASE.plan
    for holder in (plan, plan.stages[0], plan.stages[0].forward[0], plan.profile):
        for name in holder.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(holder, name, getattr(holder, name))
    again = two_stages(num_microbatches=2).plan
    assert again is not plan
    assert again == plan
    assert {plan: "plan", plan.stages[0]: "stage"} == {again: "plan", again.stages[0]: "stage"}
    other = msgspec.structs.replace(plan, micro_batch_size=plan.micro_batch_size + 1)
    assert other != plan
    assert other.digest != plan.digest
