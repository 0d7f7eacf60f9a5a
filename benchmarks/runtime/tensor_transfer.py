"""The time to send tensors to a rank of the same host: through shared memory and through gloo, in turns.

A payload makes a round trip over the runtime's transport, and each receiver reads all of it. Half of that is one
message: its time, and the CPU time of both ranks, which is lost for computing.
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
"""Consecutive messages of one kind."""
LIMIT_S = 60.0


class TransferRun(msgspec.Struct, frozen=True, kw_only=True):
    """Payloads of one size: time and CPU time of a message, by round."""

    num_bytes: int
    shared_s: tuple[float, ...]
    shared_spent_s: tuple[float, ...]
    messages_s: tuple[float, ...]
    messages_spent_s: tuple[float, ...]

    @property
    def gain(self) -> Spread:
        """The speed-up of shared memory over messages."""
        return spread([slow / fast for slow, fast in zip(self.messages_s, self.shared_s, strict=True)])


def run_transfer(rounds: int) -> list[TransferRun]:
    """Measure all sizes."""
    with Ranks() as ranks:
        return [_both(*ranks.on_all(measure, size, rounds)) for size in SIZES]


def _both(mine: TransferRun, other: TransferRun) -> TransferRun:
    """The time of the rank that starts, and the CPU time of both."""

    def together(one: tuple[float, ...], two: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(a + b for a, b in zip(one, two, strict=True))

    return msgspec.structs.replace(
        mine,
        shared_spent_s=together(mine.shared_spent_s, other.shared_spent_s),
        messages_spent_s=together(mine.messages_spent_s, other.messages_spent_s),
    )


def measure(_memory: dict[str, Any], num_bytes: int, rounds: int) -> TransferRun:
    """Measure both kinds in turns, on one rank."""
    packed = pack(torch.ones(num_bytes // 4))[0]
    shared, messages = _transport(shares=True), _transport(shares=False)
    assert shared.copies_on_send(packed, 1 - dist.get_rank()), "ranks of one host share memory"
    samples: dict[TorchTransport, list[tuple[float, float]]] = {shared: [], messages: []}
    # The first round exchanges shapes and allocates the memory.
    for _ in range(rounds + 1):
        for transport, times in samples.items():
            dist.barrier()
            times.append(_round_trip(transport, packed))
    for transport in samples:
        transport.close()
    return TransferRun(
        num_bytes=num_bytes,
        shared_s=tuple(seconds for seconds, _ in samples[shared][1:]),
        shared_spent_s=tuple(spent for _, spent in samples[shared][1:]),
        messages_s=tuple(seconds for seconds, _ in samples[messages][1:]),
        messages_spent_s=tuple(spent for _, spent in samples[messages][1:]),
    )


def _transport(*, shares: bool) -> TorchTransport:
    groups, device = ProcessGroups(dist.new_group([0, 1])), torch.device("cpu")
    if shares:
        return TorchTransport(groups, device, LIMIT_S)
    with mock.patch("penstock.runtime.transport.transport.find_neighbours", return_value={}):
        return TorchTransport(groups, device, LIMIT_S)


def _round_trip(transport: TorchTransport, packed: PackedPayload) -> tuple[float, float]:
    """The time and this rank's CPU time of one message."""
    rank, spent_s, began_s = dist.get_rank(), process_time(), perf_counter()
    for _ in range(REPEATS):
        pending = transport.irecv(1 - rank, 0, "carry", _message_name)
        if rank == 0:
            transport.send(packed, 1, 0, "carry", _message_name)
        for tensor in pending.wait().tensors:
            tensor.sum()
        if rank == 1:
            transport.send(packed, 0, 0, "carry", _message_name)
    half = 2 * REPEATS
    return (perf_counter() - began_s) / half, (process_time() - spent_s) / half


def _message_name() -> str:
    return "a carry of the benchmark"


def check_transfer(runs: list[TransferRun]) -> Iterator[Result]:
    """Shared memory must be faster from the size from which the runtime uses it."""
    for run in runs:
        yield Result(
            f"{_size(run)} to a rank of the same host: shared memory over messages",
            "> 1 x",
            f"{run.gain} x",
            run.gain.middle > 1,
        )


def _size(run: TransferRun) -> str:
    return f"{run.num_bytes >> 10:,} KiB"


def transfer_table(runs: list[TransferRun]) -> str:
    """All sizes."""
    lines = [
        "| bytes | shared memory | gloo's messages | times as fast | processor time of both: shared | messages |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run in runs:
        parts = (run.shared_s, run.messages_s, run.shared_spent_s, run.messages_spent_s)
        shared, messages, shared_spent, messages_spent = (f"{spread(part).middle * 1e6:,.0f} us" for part in parts)
        lines.append(f"| {_size(run)} | {shared} | {messages} | {run.gain} | {shared_spent} | {messages_spent} |")
    return "\n".join(lines)
