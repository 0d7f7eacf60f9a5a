"""Ranks that were given batches of different forms would take each other's messages for others: they stop before.

At the start of an iteration every rank tells those that its forwards send to, in eight bytes, of what form its batch
is; and those that make the loss tell all. Who is told looks at it before the first message from there. Until then
nothing can be mistaken, as messages for batches of each form have numbers (tags) of their own.
"""

import hashlib
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.utils import _pytree as pytree

from penstock.dist import TAG as AGREEMENT_TAG
from penstock.dist import Tell, failing_in_words
from penstock.errors import MismatchError
from penstock.program import Kind, Program
from penstock.runtime.executor import Iteration
from penstock.runtime.layout import Layout, links_of
from penstock.runtime.transport import Mail

TAG = AGREEMENT_TAG + 1
HINT = "Give every rank the same whole batch, from the same seed and the same sampler: each takes its own rows of it."

PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Values of a batch whose text is the same wherever they are equal."""


def told_forms(program: Program, layout: Layout, world: int, *, in_order: bool = False) -> set[tuple[int, int]]:
    """Who tells whom: any two ranks are joined by such pairs, in one direction or the other.

    Where messages match by their order, all that send must tell: there even what nobody uses must not come.
    """
    owners = layout.stages[-1].forward
    kinds = (Kind.SEND_F, Kind.SEND_S, Kind.SEND_B) if in_order else (Kind.SEND_F, Kind.SEND_S)
    return links_of(program, layout.devices, kinds) | {
        (owner, rank) for owner in owners for rank in range(world) if rank != owner
    }


def form_in_words(purpose: str, inputs: Any, targets: Any) -> str:
    """The form of a batch, for people and to be compared: it must be the same on every rank."""
    return f"({purpose}) inputs {_words(inputs)}, targets {_words(targets)}"


def _words(tree: Any) -> str:
    def leaf(value: Any) -> str:
        if isinstance(value, Tensor):
            return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        return repr(value) if isinstance(value, PLAIN) else type(value).__name__

    leaves, spec = pytree.tree_flatten(tree)
    shown = ", ".join(map(leaf, leaves))
    return shown if isinstance(tree, Tensor) or tree is None else f"{_nesting(spec)}: {shown}"


def _nesting(spec: Any) -> str:
    """Structure with a star for each leaf, such as (*, [*, *])."""
    return str(pytree.tree_unflatten([_Star()] * spec.num_leaves, spec))


class _Star:
    def __repr__(self) -> str:
        return "*"


class SameBatches:
    """One rank's part in that."""

    def __init__(
        self, pairs: set[tuple[int, int]], rank: int, mail: Mail, num_tags: int, store: Store, name: str
    ) -> None:
        """`num_tags` is how many different numbers messages of an iteration have."""
        self._rank = rank
        self._mail = mail
        self._targets = sorted(target for source, target in pairs if source == rank)
        self._sources = sorted(source for source, target in pairs if target == rank)
        self._num_tags = num_tags
        self._store = PrefixStore(f"penstock/{name}/forms", store)
        self._known: dict[Any, tuple[Tensor, int]] = {}

    def begin(self, iteration: Iteration) -> None:
        """Tell others, and be ready to be told. The iteration learns where the numbers of its messages begin."""
        form, step = iteration.signature, iteration.step
        if form not in self._known:
            with failing_in_words(lambda: f"rank {self._rank}, step {step}, tells the form of the batch"):
                self._known[form] = self._learn(form_in_words(form[0], iteration.inputs, iteration.targets))
        mark, iteration.first_tag = self._known[form]
        for peer in self._targets:
            self._mail.send_tensors([mark], peer, TAG, partial(self._telling, peer, step))
        for peer in self._sources:
            theirs = torch.empty_like(mark)
            told = partial(self._telling, peer, step)
            work = self._mail.receive_tensor(theirs, peer, TAG, told)
            self._mail.unheard[peer] = partial(self._compare, work, theirs, mark, told)

    def finish(self) -> None:
        """At the end of an iteration: those that no message came from."""
        while self._mail.unheard:
            self._mail.unheard.popitem()[1](None)

    def _learn(self, words: str) -> tuple[Tensor, int]:
        mark = int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "big", signed=True)
        self._store.set(str(mark), words)
        span = max(1, AGREEMENT_TAG // self._num_tags - 1)
        return torch.tensor([mark]), self._num_tags * (1 + mark % span)

    def _compare(self, work: Any, theirs: Tensor, mine: Tensor, tell: Tell, waiting: Tell | None) -> None:
        """`waiting` says what the rank needs this for, if anything."""
        self._mail.wait(work, waiting or tell)
        if int(theirs) != int(mine):
            with failing_in_words(tell):
                here, there = (self._store.get(str(int(mark))).decode() for mark in (mine, theirs))
            raise MismatchError(f"{tell()}: here it is {here}, there {there}", hint=HINT)

    def _telling(self, peer: int, step: int) -> str:
        return f"rank {self._rank}, step {step}, the form of the batch (with rank {peer})"
