"""Check that all ranks pass batches of the same shapes.

With different batches, messages could be matched incorrectly. At the start of an iteration every rank sends a digest
of its batch's structure, shapes and types (eight bytes) to the ranks that its forwards send to, and along the trees
over which the loss goes to all ranks. The receiver compares it before it uses the first message of that peer. Until
then no message can be mismatched, because messages for each signature have their own tags.
"""

import hashlib
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.utils import _pytree as pytree

from penstock.dist import CONSENSUS_TAG, Describe, translate_errors
from penstock.errors import MismatchError
from penstock.program import Kind
from penstock.program.slices import ProgramSlice
from penstock.runtime.executor import Iteration, loss_tree, part_tree
from penstock.runtime.layout import Layout, find_links
from penstock.runtime.transport import Transport

TAG = CONSENSUS_TAG + 1
HINT = "Pass the same whole batch on every rank, from the same seed and sampler. Each rank takes its own rows."

PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Types whose equal values have equal representations on all ranks."""


def batch_check_pairs(
    program: ProgramSlice, layout: Layout, world: int, *, in_order: bool = False
) -> set[tuple[int, int]]:
    """The (sender, receiver) pairs of digests. They connect any two ranks, in one direction or the other.

    Args:
        program: The slice of any rank.
        layout: The layout of its stages on ranks.
        world: Number of ranks.
        in_order: Whether messages match by order instead of tags. Then every sender must send its digest first, even
            if the receiver would not use the message.
    """
    kinds = (Kind.SEND_F, Kind.SEND_S, Kind.SEND_B) if in_order else (Kind.SEND_F, Kind.SEND_S)
    last = layout.stages[-1]
    announced = {pair for pair in zip(last.forward, last.backward, strict=True) if pair[0] != pair[1]}
    parts = {(child, parent) for parent, child in part_tree(layout).edges()}
    return find_links(program, layout, kinds) | announced | parts | set(loss_tree(layout, world).edges())


def describe_batch(purpose: str, inputs: Any, targets: Any) -> str:
    """Describe structure, shapes and types of a batch, for messages and for comparison between ranks."""
    return f"({purpose}) inputs {_describe(inputs)}, targets {_describe(targets)}"


def _describe(tree: Any) -> str:
    def describe_leaf(value: Any) -> str:
        if isinstance(value, Tensor):
            return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        return repr(value) if isinstance(value, PLAIN) else type(value).__name__

    leaves, spec = pytree.tree_flatten(tree)
    text = ", ".join(map(describe_leaf, leaves))
    return text if isinstance(tree, Tensor) or tree is None else f"{_nesting(spec)}: {text}"


def _nesting(spec: Any) -> str:
    """The structure with a star for each leaf, such as (*, [*, *])."""
    return str(pytree.tree_unflatten([_Star()] * spec.num_leaves, spec))


class _Star:
    def __repr__(self) -> str:
        return "*"


class BatchShapeCheck:
    """Sends and compares the digests of one rank.

    Args:
        pairs: The pairs of `batch_check_pairs`.
        rank: This rank.
        transport: Carries the digests.
        num_tags: Number of different tags of an iteration's messages.
        store: Holds the descriptions of batches by digest, for error messages.
        name: Name of the pipeline.
    """

    def __init__(
        self, pairs: set[tuple[int, int]], rank: int, transport: Transport, num_tags: int, store: Store, name: str
    ) -> None:
        self._rank = rank
        self._transport = transport
        self._targets = sorted(target for source, target in pairs if source == rank)
        self._sources = sorted(source for source, target in pairs if target == rank)
        self._num_tags = num_tags
        self._store = PrefixStore(f"penstock/{name}/forms", store)
        self._digests: dict[Any, tuple[Tensor, int]] = {}

    def begin(self, iteration: Iteration) -> None:
        """Start an iteration: exchange digests, and set the iteration's first tag."""
        signature, step = iteration.signature, iteration.step
        if signature not in self._digests:
            with translate_errors(lambda: f"rank {self._rank}, step {step}, publishing the batch shapes"):
                self._digests[signature] = self._publish(
                    describe_batch(signature[0], iteration.inputs, iteration.targets)
                )
        digest, iteration.first_tag = self._digests[signature]
        for peer in self._targets:
            self._transport.send_tensors([digest], peer, TAG, partial(self._describe_exchange, peer, step))
        for peer in self._sources:
            received = torch.empty_like(digest)
            describe = partial(self._describe_exchange, peer, step)
            work = self._transport.irecv_tensor(received, peer, TAG, describe)
            self._transport.peer_checks[peer] = partial(self._compare, work, received, digest, describe)

    def finish(self) -> None:
        """End an iteration: compare the digests of peers that sent no other message."""
        while self._transport.peer_checks:
            self._transport.peer_checks.popitem()[1](None)

    def _publish(self, description: str) -> tuple[Tensor, int]:
        digest = int.from_bytes(hashlib.blake2b(description.encode(), digest_size=8).digest(), "big", signed=True)
        self._store.set(str(digest), description)
        span = max(1, CONSENSUS_TAG // self._num_tags - 1)
        return torch.tensor([digest]), self._num_tags * (1 + digest % span)

    def _compare(self, work: Any, received: Tensor, own: Tensor, describe: Describe, waiting: Describe | None) -> None:
        """Compare a received digest. `waiting` describes the message that needs this check, if there is one."""
        self._transport.wait(work, waiting or describe)
        if int(received) != int(own):
            with translate_errors(describe):
                here, there = (self._store.get(str(int(digest))).decode() for digest in (own, received))
            raise MismatchError(f"{describe()}: this rank has {here}, the other rank has {there}", hint=HINT)

    def _describe_exchange(self, peer: int, step: int) -> str:
        return f"rank {self._rank}, step {step}, batch shapes (with rank {peer})"
