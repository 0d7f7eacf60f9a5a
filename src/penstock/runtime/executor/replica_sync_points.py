"""When a rank's stages meet those of other ranks, and what members without rows do meanwhile; see `meeting.py`."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial

import torch

from penstock.dist import Tell
from penstock.program import Action, Kind
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.routing import Addresses
from penstock.runtime.stage import NOTHING, TorchStage, Turn
from penstock.runtime.transport import Mail


class Meetings:
    """All of a rank's."""

    def __init__(self, addresses: Addresses, mail: Mail, runners: Mapping[int, TorchStage]) -> None:
        self._addresses = addresses
        self._mail = mail
        self._runners = {number: runner for number, runner in runners.items() if addresses.layout.stages[number].meets}

    def taking(self, iteration: Iteration, action: Action, *, backward: bool) -> AbstractContextManager[None]:
        """Around a job: what is added up over rows is so over all members."""
        if action.stage not in self._runners:
            return NOTHING
        view = self._addresses.layout.stages[action.stage]
        rows = iteration.rows[action.stage][action.microbatch]
        group = view.backward if backward else view.forward
        ranks = tuple(rank for rank, part in zip(group, rows, strict=True) if part.num)
        kind = Kind.REDUCE_TIE if backward else Kind.REDUCE_GRAD
        tag = self._addresses.tag(kind, action.stage, action.microbatch)
        turn = Turn(ranks, self._addresses.rank, tag, partial(self._telling, iteration.step, action))
        meeting = self._runners[action.stage].meeting
        assert meeting is not None, "only stages that meet are here"
        return meeting.taking(turn)

    def lead(self, iteration: Iteration, action: Action) -> None:
        """After a forward: members without rows get the buffers as it left them."""
        absent, first = self._absent(iteration, action)
        if absent and first == self._addresses.rank:
            buffers = [buffer.to("cpu", copy=True) for buffer in self._runners[action.stage].buffers()]
            for rank in absent:
                self._mail.send_tensors(
                    buffers, rank, self._buffers_tag(action), self._telling(iteration.step, action, rank)
                )

    def follow(self, iteration: Iteration, action: Action) -> None:
        """In the place of a forward without rows."""
        absent, first = self._absent(iteration, action)
        if self._addresses.rank not in absent:
            return
        for buffer in self._runners[action.stage].buffers():
            if buffer.numel():
                fresh = torch.empty_like(buffer, memory_format=torch.contiguous_format, device="cpu")
                told = self._telling(iteration.step, action, first)
                work = self._mail.receive_tensor(fresh.view(-1), first, self._buffers_tag(action), told)
                self._mail.wait(work, told)
                fresh = fresh.to(buffer.device)
                # Graphs in flight may hold buffers that do not change: those are left alone.
                if not torch.equal(buffer, fresh):
                    buffer.copy_(fresh)

    def _absent(self, iteration: Iteration, action: Action) -> tuple[list[int], int]:
        if action.stage not in self._runners:
            return [], -1
        group = self._addresses.layout.stages[action.stage].forward
        rows = iteration.rows[action.stage][action.microbatch]
        there = [rank for rank, part in zip(group, rows, strict=True) if part.num]
        return ([rank for rank in group if rank not in there], there[0]) if there else ([], -1)

    def _buffers_tag(self, action: Action) -> int:
        return self._addresses.tag(Kind.SEND_P, action.stage, action.microbatch)

    def _telling(self, step: int, action: Action, rank: int) -> Tell:
        with_peer = action._replace(peer=self._addresses.layout.devices[rank])
        return partial(self._addresses.tell, with_peer, step)
