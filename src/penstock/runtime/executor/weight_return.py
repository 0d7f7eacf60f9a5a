"""Weight return: updated weights go back to the rank of the forward, after the optimizer step.

They are sent at once, and the receiver waits for them only before the stage's next forward.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.program import Action, Kind
from penstock.runtime.executor.messages import Message, Routing
from penstock.runtime.tensors import PackedPayload, PayloadMeta, pack
from penstock.runtime.transport import PendingReceive, Transport

SIGNATURE = ("parameters",)


class WeightReturn:
    """`WeightReturner` over a transport.

    Args:
        actions: The actions of this rank.
        parameters: By stage: its trained parameters.
        trained: Parameters that this rank trains. Received weights never overwrite them.
        transport: Sends the weights.
        routing: The layout from the view of this rank.
    """

    def __init__(
        self,
        actions: Sequence[Action],
        parameters: Mapping[int, Sequence[nn.Parameter]],
        trained: Collection[nn.Parameter],
        transport: Transport,
        routing: Routing,
    ) -> None:
        self._actions = [action for action in actions if action.kind in (Kind.SEND_P, Kind.RECV_P)]
        self._parameters = {stage: _by_dtype(items) for stage, items in parameters.items()}
        # Another stage of this rank may train a shared parameter: it is up to date then, and may be in use already.
        self._trained = set(trained)
        self._transport = transport
        self._routing = routing
        self._pending: dict[int, list[PendingReceive]] = {}
        self._sent_versions: dict[nn.Parameter, int] = {}
        for action in self._actions:
            peer, tag = routing.rank_of[action.peer], routing.tag(Message.WEIGHTS, action.stage)
            transport.agree_on_form(peer, tag, SIGNATURE, _joined_form(self._parameters[action.stage]))
        self.note_versions()

    @property
    def pending_stages(self) -> list[int]:
        """Stages whose weights have not been received yet."""
        return list(self._pending)

    def note_versions(self) -> None:
        """Record that all ranks have the same weights at this moment."""
        sent = {action.stage for action in self._actions if action.kind == Kind.SEND_P}
        self._sent_versions = {
            item: item._version for stage in sent for bucket in self._parameters[stage] for item in bucket
        }

    def check(self) -> None:
        """Check before an iteration that weights have not changed on this rank alone.

        Raises:
            InputError: They have.
        """
        if any(item._version != version for item, version in self._sent_versions.items()):
            raise InputError(
                "parameters have changed outside the optimizer step on the rank that trains them; their forward runs "
                "on another rank, which has the old values",
                hint="Create the optimizer with pipe.optimizer(...), and change parameters inside its step, in a hook "
                "(register_step_pre_hook), or with pipe.load.",
            )

    def start(self, step: int) -> None:
        """After the optimizer step: send the weights that this rank trains, and post receives for the others."""
        self.note_versions()
        for action in self._actions:
            peer, tag = self._routing.rank_of[action.peer], self._routing.tag(Message.WEIGHTS, action.stage)
            # Weights that no forward has used since the last step are replaced by the new ones.
            self.finish(action.stage)
            describe = partial(self._routing.describe, action, step)
            if action.kind == Kind.SEND_P:
                self._transport.send(self._payload(action.stage, peer), peer, tag, SIGNATURE, describe)
            else:
                pending = self._transport.irecv(peer, tag, SIGNATURE, describe)
                self._pending.setdefault(action.stage, []).append(pending)

    def _payload(self, stage: int, peer: int) -> PackedPayload:
        """Return the parameters themselves if the transport copies them, else a copy of all as one tensor per dtype."""
        buckets = [[item.detach().reshape(-1) for item in bucket] for bucket in self._parameters[stage]]
        separate = pack([item for bucket in buckets for item in bucket])[0]
        if self._transport.copies_on_send(separate, peer):
            return separate
        return pack([torch.cat(bucket) for bucket in buckets])[0]

    def finish(self, stage: int) -> None:
        """Block until the weights of a stage have arrived, and copy them into the parameters."""
        for pending in self._pending.pop(stage, ()):
            buckets = self._parameters[stage]
            parameters = [item for bucket in buckets for item in bucket]
            received: Sequence[Tensor] = pending.wait().tensors
            if len(received) < len(parameters):
                sizes = [[item.numel() for item in bucket] for bucket in buckets]
                received = [
                    part for flat, parts in zip(received, sizes, strict=True) for part in torch.split(flat, parts)
                ]
            with torch.no_grad():
                for item, weights in zip(parameters, received, strict=True):
                    if item not in self._trained:
                        item.copy_(weights.view(item.shape))

    def finish_all(self) -> None:
        """Block until the weights of all stages have arrived."""
        for stage in list(self._pending):
            self.finish(stage)


def _joined_form(buckets: Sequence[Sequence[nn.Parameter]]) -> PayloadMeta:
    """The form of all parameters as one tensor per dtype."""
    sizes = [(sum(item.numel() for item in bucket), bucket[0].dtype) for bucket in buckets]
    return pack([torch.empty(size, dtype=dtype, device="meta") for size, dtype in sizes])[0].meta


def _by_dtype(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    buckets: dict[torch.dtype, list[nn.Parameter]] = {}
    for item in parameters:
        if item.numel():
            buckets.setdefault(item.dtype, []).append(item)
    return list(buckets.values())
