"""Layouts by hand: ranks, rows, reductions, owners, and which stages need a replica sync."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from penstock.errors import InputError, MemoryLimitError
from penstock.model.blocks import Block, find_blocks
from penstock.plan.types import Plan
from penstock.program.actions import Kind
from penstock.program.proof import Proof
from penstock.program.slices import slice_program
from penstock.runtime.layout.compile import PLACEHOLDER_KIND, compile_plan, placeholder_cluster, placeholder_profile
from penstock.runtime.layout.layout import (
    NO_REPLICA,
    Layout,
    find_grad_owners,
    find_links,
    find_split_backwards,
    make_layout,
    trained_names,
)
from penstock.runtime.tensors.rows import Rows
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import plan_of
from tests.support.small import one_host


def compiled(plan: Plan, model: nn.Module) -> tuple[Proof, Layout, tuple[Block, ...]]:
    blocks = find_blocks(model)
    proof = compile_plan(plan, blocks, None, None)
    return proof, make_layout(proof.costs, blocks), blocks


def linear(num: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(3, 3) for _ in range(num)))


def test_ranks_follow_the_cluster_and_not_the_stages() -> None:
    plan = plan_of([0, 1, 2, 3], [["d7"], ["d3", "d5"], ["d7"]], backward=[["d7"], ["d5", "d3"], ["d9"]])
    _, layout, _ = compiled(plan, linear(3))
    assert layout.devices == ("d3", "d5", "d7", "d9")
    assert [(stage.forward, stage.backward) for stage in layout.stages] == [
        ((2,), (2,)),
        ((0, 1), (1, 0)),
        ((2,), (3,)),
    ]
    assert [(stage.start, stage.stop, stage.shares) for stage in layout.stages] == [
        (0, 1, (1.0,)),
        (1, 2, (0.5, 0.5)),
        (2, 3, (1.0,)),
    ]
    middle = layout.stages[1]
    assert [middle.replica(rank, backward=False) for rank in range(3)] == [0, 1, NO_REPLICA]
    assert [middle.replica(rank, backward=True) for rank in range(3)] == [1, 0, NO_REPLICA]
    assert [layout.stages[2].is_local(rank) for rank in range(4)] == [True, True, False, False]
    assert [middle.is_local(rank) for rank in range(3)] == [False, False, True]
    # Three micro-batches of 3, 2 and 2 rows; the replicas take them in order.
    rows = layout.rows(7)
    assert rows[0] == [(Rows(0, 3),), (Rows(3, 5),), (Rows(5, 7),)]
    assert [sum(part.num for part in parts) for parts in rows[1]] == [3, 2, 2]
    assert rows[1][1] == (Rows(3, 4), Rows(4, 5))


def test_links_and_split_backwards() -> None:
    plan = plan_of([0, 1, 2], [["d0"], ["d1"]], backward=[["d0"], ["d0"]], num_microbatches=2, schedule="zb_h1")
    proof, layout, _ = compiled(plan, linear(2))
    program = slice_program(proof.program, "d0")
    assert find_links(program, layout, (Kind.SEND_F,)) == {(0, 1)}
    assert find_links(program, layout, (Kind.SEND_S, Kind.SEND_P)) == {(0, 1), (1, 0)}
    assert find_links(program, layout, (Kind.SEND_B,)) == set()
    split = find_split_backwards(program, layout)
    rows = [index for index, kind in enumerate(proof.program.kind) if kind == Kind.I]
    assert rows
    assert split == {(0, int(proof.program.stage[row]), int(proof.program.microbatch[row])) for row in rows}
    fused, layout, _ = compiled(plan_of([0, 1, 2], [["d0"], ["d1"]], schedule="gpipe"), linear(2))
    assert find_split_backwards(slice_program(fused.program, "d0"), layout) == set()


def test_reductions_of_ties_and_replicas() -> None:
    # The first and the last block of this model share a parameter.
    plan = plan_of([0, 2, 5], [["d0"], ["d1", "d2"]])
    _, layout, blocks = compiled(plan, KINDS["gpt"].model())
    tie, stage = layout.reducers
    assert (tie.is_tie, tie.parameters) == (True, ("0.tokens.weight",))
    assert sorted(tie.ranks) == [0, 1, 2]
    assert (stage.is_tie, stage.number, sorted(stage.ranks)) == (False, 1, [1, 2])
    # A tied parameter is summed once.
    assert "0.tokens.weight" in trained_names(blocks, layout.stages[1])
    assert set(stage.parameters) == set(trained_names(blocks, layout.stages[1])) - {"0.tokens.weight"}
    owners = find_grad_owners(layout, blocks)
    assert owners.keys() == {name for block in blocks for name in block.parameters}
    for name, rank in owners.items():
        assert rank == (0 if name in trained_names(blocks, layout.stages[0]) else layout.stages[1].backward[0])


def test_frozen_parameters_are_not_reduced() -> None:
    model = KINDS["gpt"].model()
    model.get_parameter("0.tokens.weight").requires_grad_(False)
    model.get_parameter("4.norm.bias").requires_grad_(False)
    _, layout, blocks = compiled(plan_of([0, 2, 5], [["d0"], ["d1", "d2"]]), model)
    assert all("0.tokens.weight" not in reducer.parameters for reducer in layout.reducers)
    assert all("4.norm.bias" not in reducer.parameters for reducer in layout.reducers)
    assert not {"0.tokens.weight", "4.norm.bias"} & find_grad_owners(layout, blocks).keys()
    assert "4.norm.weight" in layout.reducers[-1].parameters


def frozen(layer: nn.Module) -> nn.Module:
    return layer.eval()


@pytest.mark.parametrize(
    ("layer", "needs_sync"),
    [
        (nn.Linear(3, 3), False),
        (nn.GroupNorm(1, 3), False),
        (nn.BatchNorm1d(3), True),
        (frozen(nn.BatchNorm1d(3)), False),
        # Without running statistics it always uses those of the batch.
        (frozen(nn.BatchNorm1d(3, track_running_stats=False)), True),
        (nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.BatchNorm1d(3))), True),
    ],
)
def test_stages_that_need_a_replica_sync(layer: nn.Module, needs_sync: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), layer)
    model[2].training = layer.training
    for groups in ([["d0"], ["d1", "d2"]], [["d0", "d1"], ["d2"]], [["d0"], ["d1"]]):
        _, layout, _ = compiled(plan_of([0, 1, 3], groups), model)
        # Rows of one device need none.
        assert [stage.needs_sync for stage in layout.stages] == [False, needs_sync and len(groups[1]) > 1]


def test_placeholders_have_the_bytes_of_the_model() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2, dtype=torch.float64))
    profile = placeholder_profile(find_blocks(model), 4)
    assert [unit.parameter_bytes for unit in profile.units] == [4 * 20, 0, 8 * 12]
    assert [unit.name for unit in profile.units] == ["0 0", "1 1", "2 2"]
    assert profile.micro_batch_size == 4
    assert profile.ties == ()
    cluster = placeholder_cluster(plan_of([0, 3], [["d10", "d2", "x", "d1"]]))
    assert [device.name for device in cluster.devices] == ["x", "d1", "d2", "d10"]
    assert {device.kind for device in cluster.devices} == {PLACEHOLDER_KIND}


def test_profile_and_cluster_go_together() -> None:
    blocks = find_blocks(linear(2))
    plan = plan_of([0, 1, 2], [["d0"], ["d1"]])
    profile, cluster = placeholder_profile(blocks, 4), placeholder_cluster(plan)
    with pytest.raises(InputError, match="profile and cluster must be given together"):
        compile_plan(plan, blocks, profile, None)
    with pytest.raises(InputError, match="profile and cluster must be given together"):
        compile_plan(plan, blocks, None, cluster)


def test_memory_is_proved_only_for_the_plans_own_cluster() -> None:
    blocks = find_blocks(linear(2))
    plan = plan_of([0, 1, 2], [["d0"], ["d1"]])
    profile = placeholder_profile(blocks, 4)
    cluster = one_host(2, memory_bytes=1)
    cluster = replace(cluster, devices=tuple(replace(item, kind=PLACEHOLDER_KIND) for item in cluster.devices))
    plan = replace(
        plan,
        profile=replace(plan.profile, digest=profile.digest),
        cluster=replace(plan.cluster, digest=cluster.digest),
    )
    with pytest.raises(MemoryLimitError, match="d0 needs 192 B"):
        compile_plan(plan, blocks, profile, cluster)
    compile_plan(plan, blocks, None, None)
