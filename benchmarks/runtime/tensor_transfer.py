"""What it takes to hand tensors to a rank of the same host: in shared memory, and by gloo's messages, in turns.

A carry goes there and back by the runtime's own mail, and whoever gets it reads all of it. Half of that is one message:
its seconds, and the processor seconds of both ranks, which they would rather compute with.
"""

from collections.abc import Iterator
from time import perf_counter, process_time
from typing import Any
from unittest import mock

import msgspec
import torch
import torch.distributed as dist

from benchmarks.results import Result
from benchmarks.runtime.measurements import Spread, spread
from benchmarks.runtime.ranks import Ranks
from penstock.runtime.tensors import PackedPayload, pack
from penstock.runtime.transport import SHARED_MEMORY_MIN_BYTES, ProcessGroups, TorchTransport

SIZES = (SHARED_MEMORY_MIN_BYTES, 1 << 20, 1 << 22, 1 << 24)
REPEATS = 10
"""Messages of one way before it is the other's turn."""
LIMIT_S = 60.0


class HandingRun(msgspec.Struct, frozen=True, kw_only=True):
    """Carries of one size: seconds and processor seconds of a message, round by round."""

    num_bytes: int
    shared_s: tuple[float, ...]
    shared_spent_s: tuple[float, ...]
    messages_s: tuple[float, ...]
    messages_spent_s: tuple[float, ...]

    @property
    def gain(self) -> Spread:
        """How many times as fast shared memory is."""
        return spread([slow / fast for slow, fast in zip(self.messages_s, self.shared_s, strict=True)])


def run_handing(rounds: int) -> list[HandingRun]:
    """Measure every size."""
    with Ranks() as ranks:
        return [_both(*ranks.on_all(measure, size, rounds)) for size in SIZES]


def _both(mine: HandingRun, other: HandingRun) -> HandingRun:
    """The seconds are those of the rank that begins; both spend processor time."""

    def together(one: tuple[float, ...], two: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(a + b for a, b in zip(one, two, strict=True))

    return msgspec.structs.replace(
        mine,
        shared_spent_s=together(mine.shared_spent_s, other.shared_spent_s),
        messages_spent_s=together(mine.messages_spent_s, other.messages_spent_s),
    )


def measure(_memory: dict[str, Any], num_bytes: int, rounds: int) -> HandingRun:
    """On a rank: both ways in turns."""
    packed = pack(torch.ones(num_bytes // 4))[0]
    shared, messages = _transport(shares=True), _transport(shares=False)
    assert shared.copies_on_send(packed, 1 - dist.get_rank()), "ranks of one host share memory here"
    taken: dict[TorchTransport, list[tuple[float, float]]] = {shared: [], messages: []}
    # The first round tells the forms and makes the memory.
    for _ in range(rounds + 1):
        for transport, found in taken.items():
            dist.barrier()
            found.append(_there_and_back(transport, packed))
    for transport in taken:
        transport.close()
    return HandingRun(
        num_bytes=num_bytes,
        shared_s=tuple(seconds for seconds, _ in taken[shared][1:]),
        shared_spent_s=tuple(spent for _, spent in taken[shared][1:]),
        messages_s=tuple(seconds for seconds, _ in taken[messages][1:]),
        messages_spent_s=tuple(spent for _, spent in taken[messages][1:]),
    )


def _transport(*, shares: bool) -> TorchTransport:
    groups, device = ProcessGroups(dist.new_group([0, 1])), torch.device("cpu")
    if shares:
        return TorchTransport(groups, device, LIMIT_S)
    with mock.patch("penstock.runtime.transport.transport.find_neighbours", return_value={}):
        return TorchTransport(groups, device, LIMIT_S)


def _there_and_back(transport: TorchTransport, packed: PackedPayload) -> tuple[float, float]:
    """Seconds and processor seconds of this rank, of one message."""
    rank, spent_s, began_s = dist.get_rank(), process_time(), perf_counter()
    for _ in range(REPEATS):
        pending = transport.irecv(1 - rank, 0, "carry", _told)
        if rank == 0:
            transport.send(packed, 1, 0, "carry", _told)
        for tensor in pending.wait().tensors:
            tensor.sum()
        if rank == 1:
            transport.send(packed, 0, 0, "carry", _told)
    half = 2 * REPEATS
    return (perf_counter() - began_s) / half, (process_time() - spent_s) / half


def _told() -> str:
    return "a carry of the benchmark"


def against_messages(runs: list[HandingRun]) -> Iterator[Result]:
    """Shared memory must pay from the size on from which it is used."""
    for run in runs:
        yield Result(
            f"{_size(run)} to a rank of the same host: shared memory over messages",
            "> 1 x",
            f"{run.gain} x",
            run.gain.middle > 1,
        )


def _size(run: HandingRun) -> str:
    return f"{run.num_bytes >> 10:,} KiB"


def handing_table(runs: list[HandingRun]) -> str:
    """Every size."""
    lines = [
        "| bytes | shared memory | gloo's messages | times as fast | processor time of both: shared | messages |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run in runs:
        parts = (run.shared_s, run.messages_s, run.shared_spent_s, run.messages_spent_s)
        shared, messages, shared_spent, messages_spent = (f"{spread(part).middle * 1e6:,.0f} us" for part in parts)
        lines.append(f"| {_size(run)} | {shared} | {messages} | {run.gain} | {shared_spent} | {messages_spent} |")
    return "\n".join(lines)
