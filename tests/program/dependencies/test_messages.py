"""Sends and the passes that consume them, also of programs that nothing has proved."""

from dataclasses import replace

import pytest

from penstock.program.actions import NONE, Kind
from penstock.program.dependencies.messages import sends_and_consumers
from penstock.program.types import Program
from tests.support.strategies import two_stages

NUM_MICROBATCHES = 3


def pairs(program: Program) -> set[tuple[str, str]]:
    return {
        (program.name(send), program.name(consumer))
        for send, consumer in zip(*(values.tolist() for values in sends_and_consumers(program)), strict=True)
    }


@pytest.mark.parametrize("microbatch", [NONE, NUM_MICROBATCHES, NUM_MICROBATCHES + 1, 1000])
def test_micro_batches_that_the_plan_does_not_have(microbatch: int) -> None:
    case = two_stages(num_microbatches=NUM_MICROBATCHES)
    program = case.lowered(case.costs)
    every = pairs(program)
    assert len(every) == 2 * NUM_MICROBATCHES
    changed = program.microbatch.copy()
    last = (program.microbatch == NUM_MICROBATCHES - 1) & (
        (program.kind == Kind.SEND_F) | (program.kind == Kind.RECV_F)
    )
    assert last.sum() == 2
    changed[last] = microbatch
    rest = pairs(replace(program, microbatch=changed))
    assert rest < every
    assert len(rest) == len(every) - 1
