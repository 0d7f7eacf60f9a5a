"""Tags, peers and rows of messages, and payloads that several actions use."""

from itertools import product

import pytest
import torch

from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.program.actions import NONE, Action, Kind
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.messages.routing import Message, Routing
from penstock.runtime.layout.batch_rows import BatchRows
from penstock.runtime.layout.compile import compile_plan
from penstock.runtime.layout.layout import make_layout
from penstock.runtime.tensors import PackedPayload, pack
from penstock.runtime.tensors.rows import Rows
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import plan_of

NUM_ROWS = 12
TWO_TO_ONE = plan_of([0, 2, 4, 7], [["d0", "d1"], ["d2"], ["d3", "d4"]], backward=[["d0", "d1"], ["d1"], ["d4", "d3"]])


def routing_of(plan: Plan, rank: int) -> Routing:
    blocks = find_blocks(KINDS["mlp"].model())
    return Routing(make_layout(compile_plan(plan, blocks, None, None).costs, blocks), rank)


def iteration_of(routing: Routing) -> Iteration:
    batch = torch.arange(NUM_ROWS)
    return Iteration(0, batch, batch, NUM_ROWS, routing.layout.rows(NUM_ROWS), "form", torch.device("cpu"))


def test_every_message_has_a_tag_of_its_own() -> None:
    routing = routing_of(TWO_TO_ONE, 0)
    keys = [*product(Message, range(3), (NONE, 0, 1, 2))]
    tags = {routing.tag(*key) for key in keys}
    assert len(tags) == len(keys)
    # Tag 0 of an iteration is that of the loss. All others are below the first tag of another batch shape.
    assert min(routing.tag(message, stage, 0) for message in Message for stage in range(3)) > 0
    assert max(tags) < routing.num_tags
    # Both ends have the same tags.
    assert tags == {routing_of(TWO_TO_ONE, 4).tag(*key) for key in keys}


def test_descriptions() -> None:
    routing = routing_of(TWO_TO_ONE, 2)
    assert routing.describe(Action(Kind.F, 1, 2), 7) == "rank 2 (d2), step 7, 1F2 (micro-batch 2)"
    text = "rank 2 (d2), step 7, 1SEND_F2@d4 (micro-batch 2, with rank 4)"
    assert routing.describe(Action(Kind.SEND_F, 1, 2, "d4"), 7) == text
    assert routing.describe(Action(Kind.SEND_P, 1, peer="d3"), 7) == "rank 2 (d2), step 7, 1SEND_P@d3 (with rank 3)"
    assert routing.describe(Action(Kind.STEP, 1), 7) == "rank 2 (d2), step 7, 1STEP"


# Micro-batch 1 has rows 4 to 7. Two replicas take two of them each.
FIRST, SECOND, ALL = Rows(4, 6), Rows(6, 8), Rows(4, 8)


@pytest.mark.parametrize(
    ("rank", "kind", "stage", "peer", "rows"),
    [
        (0, Kind.SEND_F, 0, 2, ALL),
        (2, Kind.RECV_F, 1, 0, FIRST),
        (2, Kind.RECV_F, 1, 1, SECOND),
        (2, Kind.SEND_F, 1, 3, FIRST),
        (2, Kind.SEND_F, 1, 4, SECOND),
        (3, Kind.RECV_F, 2, 2, ALL),
        # The backward of stage 1 is on d1; those of stage 2 are exchanged.
        (2, Kind.SEND_S, 1, 1, ALL),
        (1, Kind.RECV_S, 1, 2, ALL),
        (3, Kind.SEND_S, 2, 4, FIRST),
        (3, Kind.RECV_S, 2, 4, SECOND),
        (4, Kind.SEND_B, 2, 1, ALL),
        (1, Kind.RECV_B, 1, 3, SECOND),
        (1, Kind.RECV_B, 1, 4, FIRST),
        (1, Kind.SEND_B, 1, 0, FIRST),
        (0, Kind.RECV_B, 0, 1, ALL),
    ],
)
def test_rows_at_the_other_end(rank: int, kind: Kind, stage: int, peer: int, rows: Rows) -> None:
    routing = routing_of(TWO_TO_ONE, rank)
    iteration = iteration_of(routing)
    action = Action(kind, stage, 1, f"d{peer}")
    assert routing.peer_rows(iteration, action, peer) == rows


def test_rows_of_a_rank() -> None:
    first, other = routing_of(TWO_TO_ONE, 3), routing_of(TWO_TO_ONE, 4)
    iteration = iteration_of(first)
    assert first.own_rows(iteration, 2, 1, backward=False) == other.own_rows(iteration, 2, 1, backward=True) == FIRST
    assert first.own_rows(iteration, 2, 1, backward=True) == other.own_rows(iteration, 2, 1, backward=False) == SECOND


@pytest.mark.parametrize("recompute", [False, True])
def test_a_recomputed_first_stage_sends_nothing(recompute: bool) -> None:
    plan = plan_of([0, 3, 7], [["d0"], ["d1"]], backward=[["d1"], ["d0"]], recompute=recompute)
    routing = routing_of(plan, 0)
    assert [routing.sends_saved(stage) for stage in range(2)] == [not recompute, True]
    iteration = iteration_of(routing)
    found = [routing.peer_rows(iteration, Action(Kind.SEND_S, stage, 1, "d1"), 1) for stage in range(1)]
    assert found == [None if recompute else ALL]


def rows_in(packed: PackedPayload) -> list[int]:
    (tensor,) = packed.tensors
    return [int(row) for row in tensor]


def test_a_payload_is_released_with_its_last_use() -> None:
    iteration = iteration_of(routing_of(TWO_TO_ONE, 0))
    key = (int(Message.ACTIVATIONS), 0, 1)
    packed = pack(torch.arange(4, 8))[0]
    # The third user has no row of it.
    iteration.put(key, packed, ALL, [FIRST, SECOND, Rows(8, 10)])
    assert rows_in(iteration.take(key, SECOND)) == [6, 7]
    assert key in iteration.produced
    assert rows_in(iteration.take(key, FIRST)) == [4, 5]
    assert iteration.produced == {}
    iteration.put(key, packed, ALL, [Rows(0, 4), Rows(8, 10)])
    assert iteration.produced == {}
    # Users may need rows that it does not have.
    iteration.put(key, packed, ALL, [Rows(5, 12)])
    assert rows_in(iteration.take(key, Rows(5, 12))) == [5, 6, 7]


def test_tensors_of_a_batch() -> None:
    one, other = torch.ones(2), torch.zeros(2)
    iteration = Iteration(
        0, {"x": one, "n": 3}, [None, other], 2, BatchRows(2, 1, [(1.0,)]), "form", torch.device("cpu")
    )
    assert [item is expected for item, expected in zip(iteration.tensors, [one, other], strict=True)] == [True, True]
