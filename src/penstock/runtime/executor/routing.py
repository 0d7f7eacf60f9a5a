"""Who is at the other end of an action, under which number messages go there, and how to say so."""

from dataclasses import dataclass
from functools import cached_property

from penstock.program import NONE, Action, Kind
from penstock.runtime.executor.context import Iteration
from penstock.runtime.layout import Layout
from penstock.runtime.tensors import Rows


@dataclass(frozen=True)
class Addresses:
    """The layout as one rank sees it."""

    layout: Layout
    rank: int

    @cached_property
    def rank_of(self) -> dict[str, int]:
        """Ranks by the names of their devices."""
        return {name: number for number, name in enumerate(self.layout.devices)}

    def tell(self, action: Action, step: int) -> str:
        """Who does what, for people."""
        who = f"rank {self.rank} ({self.layout.devices[self.rank]}), step {step}, {action}"
        which = [] if action.microbatch == NONE else [f"micro-batch {action.microbatch}"]
        whom = [f"with rank {self.rank_of[action.peer]}"] if action.peer else []
        return f"{who} ({', '.join([*which, *whom])})" if which or whom else who

    def tag(self, what: Kind, stage: int, microbatch: int = NONE) -> int:
        """A number for messages of this kind; `stage` is the one that makes what is sent."""
        return ((stage * (len(Kind) + 1)) + what) * (self.layout.num_microbatches + 1) + microbatch + 1

    @property
    def num_tags(self) -> int:
        """How many such numbers there are, from 0 on; 0 itself is that of the loss."""
        return len(self.layout.stages) * (len(Kind) + 1) * (self.layout.num_microbatches + 1)

    def mine(self, iteration: Iteration, stage: int, microbatch: int, *, backward: bool) -> Rows:
        """The rows of this rank."""
        replica = self.layout.stages[stage].replica(self.rank, backward=backward)
        return iteration.rows[stage][microbatch][replica]

    def ships(self, stage: int) -> bool:
        """Whether something must go to a backward elsewhere.

        Every rank has the batch: where the first stage's forward runs again, only what ranks added up travels.
        """
        view = self.layout.stages[stage]
        return stage > 0 or not view.recompute or view.meets

    def other_end(self, iteration: Iteration, action: Action, peer: int) -> Rows | None:
        """The rows of the peer's member at the other end of a message; None where nothing needs to be sent."""
        kind, stage = action.kind, action.stage
        if kind in (Kind.SEND_S, Kind.RECV_S):
            other, backward = (stage, kind == Kind.SEND_S) if self.ships(stage) else (NONE, False)
        elif kind in (Kind.SEND_F, Kind.RECV_F):
            other, backward = stage + (1 if kind == Kind.SEND_F else -1), False
        else:
            other, backward = stage + (-1 if kind == Kind.SEND_B else 1), True
        if other == NONE:
            return None
        replica = self.layout.stages[other].replica(peer, backward=backward)
        return iteration.rows[other][action.microbatch][replica]
