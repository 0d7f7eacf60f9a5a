"""Fresh parameters go back to where the forward runs, after the optimizer's step.

They are sent at once, and waited for only when the stage's next forward is about to run.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.program import Action, Kind
from penstock.runtime.executor.routing import Addresses
from penstock.runtime.tensors import Packed, pack
from penstock.runtime.transport import Mail, Pending

SIGNATURE = ("parameters",)


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
        self._parameters = {stage: _by_type(replicas) for stage, replicas in parameters.items()}
        # What stages share may be trained here by another of them: it is fresh then, and may be in use already.
        self._trained = set(trained)
        self._mail = mail
        self._addresses = addresses
        self._coming: dict[int, list[Pending]] = {}
        self._sent: dict[nn.Parameter, int] = {}
        self.note()

    def note(self) -> None:
        """All ranks have the same parameters at this moment."""
        sent = {action.stage for action in self._actions if action.kind == Kind.SEND_P}
        self._sent = {item: item._version for stage in sent for group in self._parameters[stage] for item in group}

    def check(self) -> None:
        """Before an iteration: refuse parameters that changed here alone."""
        if any(item._version != version for item, version in self._sent.items()):
            raise InputError(
                "parameters have changed after the optimizer's step, or without it, on the rank that trains them; "
                "their forward runs elsewhere, and has the old ones",
                hint="Make the optimizer by pipe.optimizer(...), and change parameters within its step, in a hook "
                "(register_step_pre_hook), or by pipe.load.",
            )

    def start(self, step: int) -> None:
        """After the optimizer has stepped: send what is fresh here, let come what is fresh elsewhere."""
        self.note()
        for action in self._actions:
            peer, tag = self._addresses.rank_of[action.peer], self._addresses.tag(Kind.STEP, action.stage)
            # What has not been used since the last time is replaced by what comes now.
            self.finish(action.stage)
            told = partial(self._addresses.tell, action, step)
            if action.kind == Kind.SEND_P:
                self._mail.send(self._outgoing(action.stage, peer), peer, tag, SIGNATURE, told)
            else:
                self._coming.setdefault(action.stage, []).append(self._mail.expect(peer, tag, SIGNATURE, told))

    def _outgoing(self, stage: int, peer: int) -> Packed:
        """The parameters: as they are where the mail copies them at once; else a copy of all of a type as one."""
        groups = [[item.detach().reshape(-1) for item in replicas] for replicas in self._parameters[stage]]
        apart = pack([item for group in groups for item in group])[0]
        return apart if self._mail.copies(apart, peer) else pack([torch.cat(group) for group in groups])[0]

    def finish(self, stage: int) -> None:
        """Wait for the fresh parameters of a stage, if some are on their way, and put them in place."""
        for pending in self._coming.pop(stage, ()):
            groups = self._parameters[stage]
            replicas = [item for group in groups for item in group]
            came: Sequence[Tensor] = pending.wait().tensors
            if len(came) < len(replicas):
                sizes = [[item.numel() for item in group] for group in groups]
                came = [part for flat, parts in zip(came, sizes, strict=True) for part in torch.split(flat, parts)]
            with torch.no_grad():
                for item, fresh in zip(replicas, came, strict=True):
                    if item not in self._trained:
                        item.copy_(fresh.view(item.shape))

    def finish_all(self) -> None:
        """The same for all stages."""
        for stage in list(self._coming):
            self.finish(stage)


def _by_type(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    found: dict[torch.dtype, list[nn.Parameter]] = {}
    for item in parameters:
        if item.numel():
            found.setdefault(item.dtype, []).append(item)
    return list(found.values())
