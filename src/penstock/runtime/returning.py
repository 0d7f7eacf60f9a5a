"""Fresh parameters go back to where the forward runs, after the optimizer's step.

They are sent at once, and waited for only when the segment's next forward is about to run.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from penstock.program.actions import Action, Kind
from penstock.runtime.addresses import Addresses
from penstock.runtime.mail import Mail


class Returns:
    """A rank's part in that."""

    def __init__(
        self,
        actions: Sequence[Action],
        parameters: Mapping[int, Sequence[nn.Parameter]],
        trained: Collection[nn.Parameter],
        mail: Mail,
        addresses: Addresses,
    ) -> None:
        self._actions = [action for action in actions if action.kind in (Kind.SEND_P, Kind.RECV_P)]
        self._parameters = parameters
        # What segments share may be trained here by another of them: it is fresh then, and may be in use already.
        self._trained = set(trained)
        self._mail = mail
        self._addresses = addresses
        self._coming: dict[int, list[tuple[list[nn.Parameter], Tensor, Any, Action, int]]] = {}

    def start(self, step: int) -> None:
        """After the optimizer has stepped: send what is fresh here, let come what is fresh elsewhere."""
        for action in self._actions:
            peer, tag = self._addresses.rank_of[action.peer], self._addresses.tag(Kind.STEP, action.segment)
            # What has not been used since the last time is replaced by what comes now.
            self.finish(action.segment)
            for members in _by_type(self._parameters[action.segment]):
                if action.kind == Kind.SEND_P:
                    flat = torch.cat([item.detach().reshape(-1) for item in members])
                    self._mail.send_tensors([flat], peer, tag, partial(self._addresses.tell, action, step))
                    continue
                flat = torch.empty(
                    sum(item.numel() for item in members), dtype=members[0].dtype, device=members[0].device
                )
                work = self._mail.receive_tensor(flat, peer, tag)
                self._coming.setdefault(action.segment, []).append((members, flat, work, action, step))

    def finish(self, segment: int) -> None:
        """Wait for the fresh parameters of a segment, if some are on their way, and put them in place."""
        for members, flat, work, action, step in self._coming.pop(segment, ()):
            self._mail.wait(work, partial(self._addresses.tell, action, step))
            with torch.no_grad():
                for item, fresh in zip(members, torch.split(flat, [item.numel() for item in members]), strict=True):
                    if item not in self._trained:
                        item.copy_(fresh.view(item.shape))

    def finish_all(self) -> None:
        """The same for all segments."""
        for segment in list(self._coming):
            self.finish(segment)


def _by_type(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    found: dict[torch.dtype, list[nn.Parameter]] = {}
    for item in parameters:
        if item.numel():
            found.setdefault(item.dtype, []).append(item)
    return list(found.values())
