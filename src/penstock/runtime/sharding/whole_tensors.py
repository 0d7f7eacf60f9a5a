"""Tensors of divided parameters, put together on the first rank that has a piece."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from penstock.dist import CONSENSUS_TAG, Describe
from penstock.runtime.sharding.optimizer_shards import Slice

TAG = CONSENSUS_TAG + 2


class ObjectTransport(Protocol):
    """The messages that this module needs."""

    def send_object(self, value: Any, peer: int, tag: int, describe: Describe) -> None:
        """Send an object without blocking."""

    def receive_object(self, peer: int, tag: int, describe: Describe, extra_s: float = 0.0) -> Any:
        """Return the next object from a peer."""


def collect_whole(
    values: Mapping[str, Mapping[str, Any]], slices: Mapping[str, Slice], rank: int, transport: ObjectTransport
) -> dict[str, dict[str, Any]]:
    """Put the values of divided parameters together. All ranks that have a piece must call it.

    Args:
        values: By parameter: values by key. Tensors of the form of the piece are put together; others are those of the
            first rank.
        slices: The divided parameters of this rank.
        rank: This rank.
        transport: Carries the values.

    Returns:
        By parameter: the values of the whole, for those whose first piece this rank has.
    """
    names = sorted(values)
    describe = _Description(rank)
    for name in names:
        part = slices[name]
        if part.holders[0] != rank:
            own = {key: _on_host(value) for key, value in values[name].items() if _is_piece(value, part)}
            transport.send_object((name, own), part.holders[0], TAG, describe)
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        part = slices[name]
        if part.holders[0] == rank:
            others = [transport.receive_object(peer, TAG, describe) for peer in part.holders[1:]]
            assert all(other == name for other, _ in others), "ranks put the same parameters together in the same order"
            found[name] = {
                key: torch.cat([_on_host(value).reshape(-1), *(own[key].reshape(-1) for _, own in others)]).view(
                    part.shape
                )
                if _is_piece(value, part)
                else value
                for key, value in values[name].items()
            }
    return found


def _is_piece(value: Any, part: Slice) -> bool:
    return isinstance(value, Tensor) and tuple(value.shape) == part.piece_shape


def _on_host(value: Tensor) -> Tensor:
    return value.detach().cpu()


class _Description:
    def __init__(self, rank: int) -> None:
        self._rank = rank

    def __call__(self) -> str:
        return f"rank {self._rank}, puts the parts of a sharded optimizer's parameters together"
