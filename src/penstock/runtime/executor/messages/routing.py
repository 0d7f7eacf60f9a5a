"""Routing: the peer of an action, the rows at both ends of a message, its tag, and its description."""

from dataclasses import dataclass
from enum import IntEnum

from penstock.program import NONE, Action, Kind
from penstock.runtime.executor.context import Iteration
from penstock.runtime.layout import Layout
from penstock.runtime.tensors import Rows


class Message(IntEnum):
    """Kinds of messages, as part of a tag."""

    ACTIVATIONS = 0
    GRADIENTS = 1
    SAVED_TENSORS = 2
    """Saved tensors, or the stage's input, for a remote backward."""
    WEIGHTS = 3
    BUFFERS = 4
    """Buffers for replicas without rows."""
    FORWARD_SYNC = 5
    BACKWARD_SYNC = 6


_NUM_MESSAGES = len(Message)


@dataclass(frozen=True)
class Routing:
    """The layout from the view of one rank."""

    layout: Layout
    rank: int

    @property
    def rank_of(self) -> dict[str, int]:
        """Ranks by the names of their devices."""
        return self.layout.rank_of

    def describe(self, action: Action, step: int) -> str:
        """Return rank, device, step, action, micro-batch and peer as text."""
        text = f"rank {self.rank} ({self.layout.devices[self.rank]}), step {step}, {action}"
        microbatch = [] if action.microbatch == NONE else [f"micro-batch {action.microbatch}"]
        peer = [f"with rank {self.rank_of[action.peer]}"] if action.peer else []
        return f"{text} ({', '.join([*microbatch, *peer])})" if microbatch or peer else text

    def tag(self, message: Message, stage: int, microbatch: int = NONE) -> int:
        """Return the tag of a message; `stage` is the one that produces it."""
        return ((stage * _NUM_MESSAGES) + message) * (self.layout.num_microbatches + 1) + microbatch + 1

    @property
    def num_tags(self) -> int:
        """Number of tags, which start at 0. Tag 0 is that of the loss."""
        return len(self.layout.stages) * _NUM_MESSAGES * (self.layout.num_microbatches + 1)

    def own_rows(self, iteration: Iteration, stage: int, microbatch: int, *, backward: bool) -> Rows:
        """Return the rows of this rank."""
        replica = self.layout.stages[stage].replica(self.rank, backward=backward)
        return iteration.rows[stage][microbatch][replica]

    def sends_saved(self, stage: int) -> bool:
        """Return whether the rank of a remote backward needs a message from the rank of the forward.

        Every rank has the batch. For a recomputed first stage only the sums of replica syncs are sent.
        """
        view = self.layout.stages[stage]
        return stage > 0 or not view.recompute or view.needs_sync

    def peer_rows(self, iteration: Iteration, action: Action, peer: int) -> Rows | None:
        """Return the rows of the peer's replica at the other end of a message; None if nothing is sent."""
        kind, stage = action.kind, action.stage
        if kind in (Kind.SEND_S, Kind.RECV_S):
            other, backward = (stage, kind == Kind.SEND_S) if self.sends_saved(stage) else (NONE, False)
        elif kind in (Kind.SEND_F, Kind.RECV_F):
            other, backward = stage + (1 if kind == Kind.SEND_F else -1), False
        else:
            other, backward = stage + (-1 if kind == Kind.SEND_B else 1), True
        if other == NONE:
            return None
        replica = self.layout.stages[other].replica(peer, backward=backward)
        return iteration.rows[other][action.microbatch][replica]
