"""The proof that a lowered program can run: before it is simulated, and before it is run.

1. every action occurs exactly once, on the device that the plan gives it;
2. every dependency is met by an earlier action of the same device or by a receive;
3. sends and receives pair up in order on every link;
4. there is no deadlock, even if devices wait for all that they have posted before they go on (`rendezvous.py`);
5. training accepts the plan and its order: no layer forbids it;
6. memory stays within every device's limit.

Cost: O(actions), plus sorting the messages by link.
"""

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats
from penstock.errors import MemoryLimitError, ProofError
from penstock.plan.pricing import Costs
from penstock.program.actions import NONE, is_compute
from penstock.program.dependencies import Dependencies, find_dependencies
from penstock.program.job_table import JobTable, find_jobs
from penstock.program.proof.completeness import check_complete
from penstock.program.proof.memory import MemoryUse, memory_changes, memory_use
from penstock.program.proof.order import check_links, check_order
from penstock.program.proof.rendezvous import check_rendezvous
from penstock.program.proof.restrictions import check_restrictions
from penstock.program.types import Program
from penstock.units import show_bytes


@dataclass(frozen=True, eq=False)
class Proof:
    """A lowered program that can run.

    Attributes:
        program: The lowered program.
        costs: The priced plan.
        peak_bytes: The peak memory of every device.
    """

    program: Program
    costs: Costs
    jobs: JobTable
    dependencies: Dependencies
    memory: MemoryUse
    peak_bytes: Floats
    """Over devices."""

    @property
    def num_compute(self) -> int:
        """The number of actions that occupy a device."""
        return int((is_compute(self.program.kind)).sum())

    @property
    def num_messages(self) -> int:
        """The number of messages between devices."""
        return self.dependencies.num_transfers - len(self.costs.collectives)


def prove(program: Program, costs: Costs, *, within_memory: bool = True) -> Proof:
    """Prove that a lowered program can run.

    Args:
        program: The lowered program.
        costs: The priced plan.
        within_memory: Whether to check memory limits.

    Returns:
        The proof.

    Raises:
        ProofError: The program cannot run; the error names the failing action.
        DeadlockError: Devices wait for each other in a cycle.
        MemoryLimitError: A device needs more memory than it has.
    """
    if not program.is_lowered:
        raise ProofError(
            "the program is not lowered: it has no sends, receives or optimizer steps", hint="Call lower() first."
        )
    jobs = find_jobs(program, costs)
    flow = check_complete(program, costs, jobs.replica)
    check_order(program, costs, jobs)
    check_links(program, costs, flow)
    dependencies = find_dependencies(program, costs, jobs)
    # Before deadlocks in general: lowering cannot order the messages of a program whose replica syncs deadlock.
    check_restrictions(program, costs, dependencies)
    check_rendezvous(program, costs, dependencies)
    if costs.restrictions.synced:
        check_rendezvous(program, costs, dependencies, tuple(costs.restrictions.synced))
    memory = memory_use(program, costs, jobs)
    proof = Proof(program, costs, jobs, dependencies, memory, memory.peak(program, costs))
    if within_memory:
        check_memory(proof)
    return proof


def check_memory(proof: Proof) -> None:
    """Reject a program that needs more memory than a device has.

    Raises:
        MemoryLimitError: It names the device, the action, the excess and the largest parts.
    """
    program, costs, memory, peak = proof.program, proof.costs, proof.memory, proof.peak_bytes
    excess = costs.over_bytes(peak)
    over = np.flatnonzero(excess)
    if not len(over):
        return
    device = int(np.argmax(excess))
    limit, most = float(costs.memory_limit[device]), float(peak[device])
    name = program.devices[device]
    first, last = int(program.offsets[device]), int(program.offsets[device + 1])
    if costs.static_bytes[device] > limit:
        at, needs = NONE, float(costs.static_bytes[device])
        when, later = "before its first action", f" (and {show_bytes(most)} at its peak)"
    else:
        at = first + int(np.argmax(np.maximum(memory.during[first:last], memory.after[first:last])))
        needs, when, later = most, f"at {program.action(at)}", ""
    parts = memory_parts(program, costs, proof.jobs, device, at)
    count = len(over) - 1
    others = f"; {count} other device{'s' if count > 1 else ''} over the limit" if count else ""
    raise MemoryLimitError(
        f"{name} needs {show_bytes(needs)} {when}, {show_bytes(needs - limit)} more than the {show_bytes(limit)} it has"
        f"{later}: " + ", ".join(f"{text} {show_bytes(size)}" for text, size in parts if size >= 0.5) + others,
        hint="Plan again: for more devices, with a smaller micro-batch size, a schedule that needs less memory (auto, "
        "1f1b), or with recomputation, which the planner auto uses where needed. `penstock plan` tries these.",
    )


def memory_parts(program: Program, costs: Costs, jobs: JobTable, device: int, at: int) -> list[tuple[str, float]]:
    """The parts of a device's memory during the action `at` (NONE: all the time)."""
    parts = [
        ("weights", float(costs.weight_bytes[device])),
        ("gradients", float(costs.gradient_bytes[device])),
        ("optimizer state", float(costs.optimizer_bytes[device])),
        ("workspace", float(costs.work_bytes[device])),
    ]
    if at == NONE:
        return parts
    changes = memory_changes(program, costs, jobs)
    first = int(program.offsets[device])
    for text, before, after in (
        ("saved tensors", changes.saved_before, changes.saved_after),
        ("receive buffers", changes.received_before, changes.received_after),
        ("send buffers", changes.sent_before, changes.sent_after),
    ):
        during = float(before[first : at + 1].sum() + after[first:at].sum())
        parts.append((text, max(during, during + float(after[at]))))
    return parts
