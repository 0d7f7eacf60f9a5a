"""What each stage holds, in the words of engines that count blocks: the embedding, a number of blocks, the head."""

from typing import NamedTuple

from penstock.export.subject import Subject


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
