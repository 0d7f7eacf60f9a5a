"""Descriptions of what an engine runs: layouts, partitions and schedules, and clear errors for wrong ones."""

from pathlib import Path

import pytest
from msgspec.structs import replace

import penstock
from penstock.export import import_plan
from penstock.export.imports.megatron_stages import expand_layout
from penstock.plan import Plan
from tests.support.exports import block_names, devices, named_profile

FOUR = devices(4)
BLOCKS = named_profile(block_names(4))
WHOLE = named_profile(["wte", "wpe", *(f"h.{number}" for number in range(4)), "norm", "lm_head"])


def imported(text: str, profile: penstock.Profile = BLOCKS, num: int = 4) -> Plan:
    return import_plan(text, profile, FOUR, num)


def spans(plan: Plan) -> list[tuple[int, int, str]]:
    return [(stage.start, stage.stop, ",".join(item.device for item in stage.forward)) for stage in plan.stages]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("megatron:Et|tttL dp=1", [(0, 3, "d0"), (3, 10, "d1")]),
        ("megatron:E|t|tt,t|L", [(0, 1, "d0"), (1, 3, "d1"), (3, 9, "d2"), (9, 10, "d3")]),
        ("megatron:E(t|)*3tL pp=2 dp=1", [(0, 3, "d0"), (3, 5, "d1"), (5, 7, "d0"), (7, 10, "d1")]),
        ("megatron:*-*|-*-*- pp=1 dp=1 devices=d3", [(0, 4, "d3"), (4, 10, "d3")]),
        ("megatron:*-*|-*-*- dp=1 devices=d3,d1", [(0, 4, "d3"), (4, 10, "d1")]),
        ("deepspeed:0,2,10 dp=1", [(0, 2, "d0"), (2, 10, "d1")]),
        ("deepspeed:0,2,6 dp=1", [(0, 3, "d0"), (3, 10, "d1")]),
    ],
)
def test_stages(text: str, expected: list[tuple[int, int, str]]) -> None:
    assert spans(imported(text)) == expected


def test_recomputed_stages() -> None:
    for keys, expected in (("all", [True, True]), ("1", [False, True]), ("0,1", [True, True])):
        plan = imported(f"deepspeed:0,2,10 dp=1 recompute={keys}")
        assert [stage.recompute for stage in plan.stages] == expected


def test_devices_that_remain_are_replicas() -> None:
    plan = import_plan("megatron:Ett|ttL", replace(BLOCKS, micro_batch_size=2), FOUR, 4)
    assert spans(plan) == [(0, 5, "d0,d1"), (5, 10, "d2,d3")]


def test_layers_before_and_behind_the_blocks_belong_to_the_ends() -> None:
    assert spans(imported("megatron:Et|tt|t|L", WHOLE)) == [(0, 3, "d0"), (3, 5, "d1"), (5, 6, "d2"), (6, 8, "d3")]


def test_a_schedule_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "schedule.csv"
    path.write_text("0F0,,1F0,1B0,0B0\n2F0,2I0,2W0\n")
    plan = imported(f"torch:{path} cuts=0,2,5,10 devices=d2,d0", num=1)
    assert spans(plan) == [(0, 2, "d2"), (2, 5, "d2"), (5, 10, "d0")]
    program = penstock.evaluate(plan, BLOCKS, FOUR).program
    assert [str(action) for action in program.actions("d0") if action.kind.is_pass] == ["2F0", "2I0", "2W0"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("megatorn:EttttL", "unknown engine 'megatorn'"),
        ("megatron:", "no stages are given"),
        ("deepspeed", "no stages are given"),
        ("megatron:EttttL tp=2", "'tp=2' is not KEY=VALUE"),
        ("megatron:EttttL dp=0", "dp=0 must be a number"),
        ("megatron:EttttL dp=1 dp=2", "dp= is given twice"),
        ("megatron:EttttL dp=1 recompute=some", "'some' is no list of numbers"),
        ("megatron:Ett|ttL dp=1 recompute=0,2", "names stage 2, the last is 1"),
        ("megatron:EttttL cuts=0,2", "megatron has no cuts="),
        ("megatron:ttttL", "begins with E"),
        ("megatron:EtttLt", "begins with E"),
        ("megatron:Ettt|L", "3 blocks, the model has 4"),
        ("megatron:Ett||ttL", "stage 1 is empty"),
        ("megatron:EttttmL", "multi-token prediction"),
        ("megatron:EttxttL", "unknown symbol 'x'"),
        ("megatron:Et*99999|(t|)*99999L", "more than 100,000 symbols"),
        ("megatron:Ett|t|tL pp=2", "3 stages cannot be divided over 2"),
        ("megatron:Ett|t|tL", "4 devices for 3 pipeline ranks"),
        ("megatron:Ett|ttL dp=3", "pipeline ranks and 3 replicas"),
        ("megatron:Ett|ttL devices=d0,d9", "unknown device 'd9'"),
        ("megatron:Ett|ttL devices=d0,d0", "named twice"),
        ("megatron:Ett|ttL", "1 rows of a micro-batch cannot be divided over 2 replicas"),
        ("megatron:*-*-|*-*", "the pattern has 7 layers, the model has 8"),
        ("megatron:*-*-|--*-", "layer 4 of the pattern is '-', the model has the part 'attn' of block 2"),
        ("deepspeed:0,2", "the cuts end with 2, but the model has 10 (or 6 with whole blocks) layers"),
        ("deepspeed:0,5,3,10", "cuts begin with 0 and increase"),
        ("deepspeed:1,10", "cuts begin with 0 and increase"),
        ("deepspeed:0,x,10", "is no list of numbers"),
        ("deepspeed:0,5,10 pp=2", "deepspeed has no pp="),
        ("torch:nowhere.csv cuts=0,5,10", "no such file"),
        ("torch:nowhere.csv", "does not state where the model is cut"),
    ],
)
def test_wrong_descriptions(text: str, what: str) -> None:
    with pytest.raises(penstock.InputError) as caught:
        imported(text)
    assert what in str(caught.value)


def test_another_model() -> None:
    with pytest.raises(penstock.InputError, match="not one stack of numbered blocks"):
        imported("megatron:EttL", named_profile([str(number) for number in range(4)]))
    with pytest.raises(penstock.InputError, match="undivided block 0"):
        imported("megatron:*-*-", WHOLE)


@pytest.mark.parametrize(
    ("rows", "cuts", "what"),
    [
        ("0F0,0B0\n1F0,1B0\n", "0,10", "has 2 stages, the cuts make 1"),
        ("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", "0,5,10", "has 2 micro-batches, not 1"),
        ("0F0,0B0\n999999999F0\n", "0,5,10", "stage 1 has no actions"),
    ],
)
def test_wrong_schedules(rows: str, cuts: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "schedule.csv").write_text(rows)
    with pytest.raises(penstock.InputError, match=what):
        imported(f"torch:{tmp_path / 'schedule.csv'} cuts={cuts}", num=1)


def test_repetitions() -> None:
    assert expand_layout("Et*3|(tt|)*2,(t)*2L", where="") == "Ettt|tt|tt|ttL"
