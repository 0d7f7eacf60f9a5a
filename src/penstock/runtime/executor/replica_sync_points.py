"""Replica syncs of a rank's actions, and the buffers of replicas without rows."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial

import torch

from penstock.dist import Describe
from penstock.program import Action
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.messages import Message, Routing
from penstock.runtime.executor.protocols import StageRunner
from penstock.runtime.stage import NULL_CONTEXT, SyncPoint
from penstock.runtime.transport import Transport


class ReplicaSyncPoints:
    """The replica syncs of all stages of a rank.

    Args:
        routing: The layout from the view of this rank.
        transport: Sends buffers to replicas without rows.
        runners: The stages of this rank.
    """

    def __init__(self, routing: Routing, transport: Transport, runners: Mapping[int, StageRunner]) -> None:
        self._routing = routing
        self._transport = transport
        self._runners = {
            number: runner for number, runner in runners.items() if routing.layout.stages[number].needs_sync
        }

    def around(self, iteration: Iteration, action: Action, *, backward: bool) -> AbstractContextManager[None]:
        """Return the context of an action: sums over rows include the rows of all replicas."""
        if action.stage not in self._runners:
            return NULL_CONTEXT
        view = self._routing.layout.stages[action.stage]
        rows = iteration.rows[action.stage][action.microbatch]
        group = view.backward if backward else view.forward
        ranks = tuple(rank for rank, part in zip(group, rows, strict=True) if part.num)
        message = Message.BACKWARD_SYNC if backward else Message.FORWARD_SYNC
        tag = self._routing.tag(message, action.stage, action.microbatch)
        point = SyncPoint(ranks, self._routing.rank, tag, partial(self._describe, iteration.step, action))
        replica_sync = self._runners[action.stage].replica_sync
        assert replica_sync is not None, "only stages with replica sync are here"
        return replica_sync.at(point)

    def send_buffers(self, iteration: Iteration, action: Action) -> None:
        """After a forward: send the updated buffers to replicas without rows."""
        idle, first = self._idle_ranks(iteration, action)
        if idle and first == self._routing.rank:
            buffers = [buffer.to("cpu", copy=True) for buffer in self._runners[action.stage].buffers()]
            for rank in idle:
                self._transport.send_tensors(
                    buffers, rank, self._buffers_tag(action), self._describe(iteration.step, action, rank)
                )

    def receive_buffers(self, iteration: Iteration, action: Action) -> None:
        """Instead of a forward without rows: receive the updated buffers."""
        idle, first = self._idle_ranks(iteration, action)
        if self._routing.rank not in idle:
            return
        for buffer in self._runners[action.stage].buffers():
            if buffer.numel():
                received = torch.empty_like(buffer, memory_format=torch.contiguous_format, device="cpu")
                describe = self._describe(iteration.step, action, first)
                work = self._transport.irecv_tensor(received.view(-1), first, self._buffers_tag(action), describe)
                self._transport.wait(work, describe)
                received = received.to(buffer.device)
                # Graphs in flight may hold a buffer, so it is written only if it has changed.
                if not torch.equal(buffer, received):
                    buffer.copy_(received)

    def _idle_ranks(self, iteration: Iteration, action: Action) -> tuple[list[int], int]:
        """Return the ranks without rows, and the first rank with rows, which sends them its buffers."""
        if action.stage not in self._runners:
            return [], -1
        group = self._routing.layout.stages[action.stage].forward
        rows = iteration.rows[action.stage][action.microbatch]
        busy = [rank for rank, part in zip(group, rows, strict=True) if part.num]
        return ([rank for rank in group if rank not in busy], busy[0]) if busy else ([], -1)

    def _buffers_tag(self, action: Action) -> int:
        return self._routing.tag(Message.BUFFERS, action.stage, action.microbatch)

    def _describe(self, step: int, action: Action, rank: int) -> Describe:
        with_peer = action._replace(peer=self._routing.layout.devices[rank])
        return partial(self._routing.describe, with_peer, step)
