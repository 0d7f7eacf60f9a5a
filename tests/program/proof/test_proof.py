"""What the proof says of broken programs: which action, and why."""

import pytest

from penstock.errors import DeadlockError, MemoryLimitError, ProofError
from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.pricing import price
from penstock.planners.api import plan
from penstock.program.actions import parse_action
from penstock.program.lowering.lowering import lower
from penstock.program.proof.proof import prove
from penstock.program.types import Program, program_from_actions
from penstock.schedules.registry import schedule
from tests.support.small import equal_profile, one_host


def _problem(memory_bytes: list[int | None] | None = None) -> tuple[Program, Costs]:
    """Two stages, two micro-batches; one second a job; a cut of 10 bytes, 100 bytes saved, 1000 of parameters."""
    profile = equal_profile(2, cut_bytes=10, saved_bytes=100, parameter_bytes=1000)
    cluster = one_host(2, bandwidth=10.0, memory_bytes=memory_bytes)
    made = plan(profile, cluster, 2, planner="uniform")
    costs = price(made, profile, cluster)
    return lower(schedule(costs), costs), costs


def _texts(program: Program) -> list[list[str]]:
    return [[str(action) for action in program.actions(name)] for name in program.devices]


def _program(program: Program, texts: list[list[str]]) -> Program:
    return program_from_actions(program.plan, program.devices, [[parse_action(text) for text in row] for row in texts])


def test_the_correct_program() -> None:
    program, costs = _problem()
    assert _texts(program) == [
        ["0F0", "0SEND_F0@d1", "0F1", "0SEND_F1@d1", "0RECV_B0@d1", "0B0", "0RECV_B1@d1", "0B1", "0STEP"],
        ["1RECV_F0@d0", "1RECV_F1@d0", "1F0", "1B0", "1SEND_B0@d0", "1F1", "1B1", "1SEND_B1@d0", "1STEP"],
    ]
    proof = prove(program, costs)
    assert (proof.num_compute, proof.num_messages) == (10, 4)


@pytest.mark.parametrize(
    ("device", "old", "new", "said"),
    [
        (0, "0F1", None, "0F1 on d0 is missing"),
        (1, "1SEND_B1@d0", None, "1SEND_B1@d0 on d1 is missing"),
        (0, "0STEP", None, "0STEP on d0 is missing"),
        (0, "0F1", "0F0", "0F0 on d0 occurs twice"),
        (1, "1F1", "1F7", "1F7 on d1: the micro-batch does not exist"),
        (1, "1F1", "0F1", "0F1 on d1: the plan does not assign this action to this device"),
        (1, "1STEP", "1REDUCE_GRAD", "1REDUCE_GRAD on d1: this stage is not replicated"),
        (1, "1B1", "1R1", "1R1 on d1: the plan does not recompute this stage"),
        (1, "1SEND_B1@d0", "1SEND_F1@d0", "1SEND_F1@d0 on d1: the plan has no such message between these devices"),
    ],
)
def test_jobs(device: int, old: str, new: str | None, said: str) -> None:
    program, costs = _problem()
    texts = _texts(program)
    place = texts[device].index(old)
    texts[device][place : place + 1] = [] if new is None else [new]
    with pytest.raises(ProofError, match=said.replace("@", "@")):
        prove(_program(program, texts), costs)


@pytest.mark.parametrize(
    ("device", "first", "second", "said"),
    [
        (0, "0F0", "0B0", "0B0 on d0 precedes 0RECV_B0@d1: it needs the received payload"),
        (1, "1F1", "1B1", "1B1 on d1 precedes 1F1: a backward needs its forward"),
        (0, "0F0", "0SEND_F0@d1", "0SEND_F0@d1 on d0 precedes 0F0: its payload is not computed yet"),
        (1, "1RECV_F0@d0", "1F0", "1F0 on d1 precedes 1RECV_F0@d0: it needs the received payload"),
        (1, "1B1", "1STEP", "precedes 1B1"),
        (1, "1RECV_F0@d0", "1RECV_F1@d0", "1RECV_F1@d0 on d1 is matched with 0SEND_F0@d1 on d0, which"),
    ],
)
def test_order(device: int, first: str, second: str, said: str) -> None:
    program, costs = _problem()
    texts = _texts(program)
    one, other = texts[device].index(first), texts[device].index(second)
    texts[device][one], texts[device][other] = second, first
    with pytest.raises(ProofError, match=said):
        prove(_program(program, texts), costs)


def test_a_circle_names_who_waits_for_whom() -> None:
    program, costs = _problem()
    texts = _texts(program)
    # d0 wants to see micro-batch 0 back before it sends micro-batch 1; d1 wants both before it sends any back.
    texts[0] = ["0RECV_B0@d1", "0RECV_B1@d1", "0F0", "0SEND_F0@d1", "0B0", "0F1", "0SEND_F1@d1", "0B1", "0STEP"]
    texts[1] = ["1RECV_F0@d0", "1RECV_F1@d0", "1F0", "1F1", "1B0", "1SEND_B0@d0", "1B1", "1SEND_B1@d0", "1STEP"]
    with pytest.raises(DeadlockError, match="deadlock: 0RECV_B0@d1 on d0 waits for 1SEND_B0@d0 on d1; 1RECV_F0@d0"):
        prove(_program(program, texts), costs)


def test_compute_only_is_refused() -> None:
    _, costs = _problem()
    with pytest.raises(ProofError, match="the program is not lowered"):
        prove(schedule(costs), costs)


def test_memory_says_who_when_how_much_and_what() -> None:
    # Held all the time: 1000 of weights, 1000 of gradients, 2000 of optimizer state. d0 keeps two micro-batches in
    # 1F1B, and has posted the gradient of the first (10 bytes); its own two outputs of 10 bytes leave one by one.
    # d1 keeps one micro-batch, and has posted the next one's activations, or is sending a gradient.
    program, costs = _problem([4100, 4200])
    with pytest.raises(MemoryLimitError) as caught:
        prove(program, costs)
    assert caught.value.what == (
        "d0 needs 4.22 kB at 0RECV_B0@d1, 120 B more than the 4.10 kB it has: weights 1.00 kB, gradients 1.00 kB, "
        "optimizer state 2.00 kB, saved tensors 200 B, receive buffers 10 B, send buffers 10 B"
    )
    assert prove(program, costs, within_memory=False).peak_bytes.tolist() == [4220.0, 4110.0]


def test_memory_that_is_short_from_the_start() -> None:
    program, costs = _problem([None, 3000])
    with pytest.raises(MemoryLimitError) as caught:
        prove(program, costs)
    assert caught.value.what == (
        "d1 needs 4.00 kB before its first action, 1.00 kB more than the 3.00 kB it has (and 4.11 kB at its peak): "
        "weights 1.00 kB, gradients 1.00 kB, optimizer state 2.00 kB"
    )
