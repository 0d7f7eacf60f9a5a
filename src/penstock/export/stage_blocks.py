"""What each stage holds, in the words of engines that count blocks: the embedding, a number of blocks, the head."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from penstock.export.subject import Subject
from penstock.profile import LayerRole

SYMBOLS: Mapping[str, str] = MappingProxyType({"attn": "*", "mlp": "-", "experts": "E"})
"""Megatron's symbols for the parts of a block, in hybrid layer patterns."""


class StageBlocks(NamedTuple):
    """The contents of a stage that begins and ends between blocks.

    Attributes:
        has_embedding: Whether it holds the layers before the blocks.
        blocks: The numbers of its blocks.
        has_head: Whether it holds the layers behind the blocks.
    """

    has_embedding: bool
    blocks: tuple[int, ...]
    has_head: bool


def stage_blocks(subject: Subject) -> tuple[StageBlocks, ...]:
    """What each stage holds. A block that is cut counts for every stage that has a part of it."""
    stages = []
    for stage in subject.plan.stages:
        roles = subject.roles[stage.start : stage.stop]
        blocks = dict.fromkeys(role.block for role in roles if role.place == "block")
        places = {role.place for role in roles}
        stages.append(StageBlocks("before" in places, tuple(blocks), "behind" in places))
    return tuple(stages)


def whole_blocks(roles: Sequence[LayerRole]) -> list[int]:
    """For each layer its index in the list in which the layers of a block are one.

    >>> from penstock.profile import layer_roles
    >>> whole_blocks(layer_roles(["embedding", "block.0.attn", "block.0.mlp", "head"]))
    [0, 1, 1, 2]
    """
    numbers: list[int] = []
    for index, role in enumerate(roles):
        is_same = index > 0 and role.place == "block" and role[:3] == roles[index - 1][:3]
        numbers.append(numbers[-1] + (not is_same) if numbers else 0)
    return numbers
