"""What each layer of a profile is in a transformer: a part of a numbered block, or before or behind the blocks.

The role follows from the layer's name: `model.layers.3` and `block.3.attn` are, or are a part of, block 3. Engines
count blocks, and most of them cannot cut one.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

Cuts: TypeAlias = Literal["layers", "blocks", "whole", "between"]
"""Where stages may begin: at any layer, not inside a block, not among those before or behind the blocks either, or only
between two blocks. Each allows less than the one before."""

_BLOCK = re.compile(r"(?P<stack>(?:.*\.)?)(?P<number>\d{1,9})(?:\.(?P<part>[A-Za-z_]\w*))?\Z", re.ASCII)


class LayerRole(NamedTuple):
    """The role of one layer.

    Attributes:
        place: Whether the layer is before the blocks, in a block, between blocks, or behind them.
        stack: The prefix of the block's name, such as "model.layers."; models with an encoder and a decoder have two.
        block: The number of the block, or -1.
        part: The part of the block, such as "attn"; empty if the layer is a whole block.
    """

    place: Literal["before", "block", "between", "behind"]
    stack: str = ""
    block: int = -1
    part: str = ""


def layer_roles(names: Sequence[str]) -> tuple[LayerRole, ...]:
    """The role of every layer.

    Args:
        names: The names of the layers, in order.

    >>> roles = layer_roles(["embedding", "block.0.attn", "block.0.mlp", "head"])
    >>> [(role.place, role.block, role.part) for role in roles]
    [('before', -1, ''), ('block', 0, 'attn'), ('block', 0, 'mlp'), ('behind', -1, '')]
    """
    matches = [_BLOCK.match(name) for name in names]
    blocks = [index for index, match in enumerate(matches) if match]
    roles = []
    for index, match in enumerate(matches):
        if match:
            roles.append(LayerRole("block", match["stack"], int(match["number"]), match["part"] or ""))
        elif not blocks or index < blocks[0]:
            roles.append(LayerRole("before"))
        else:
            roles.append(LayerRole("between" if index < blocks[-1] else "behind"))
    return tuple(roles)


def is_inside_block(roles: Sequence[LayerRole], cut: int) -> bool:
    """Whether a cut before the layer `cut` divides a block."""
    if not 0 < cut < len(roles):
        return False
    left, right = roles[cut - 1], roles[cut]
    return left.place == right.place == "block" and left[1:3] == right[1:3]


def allowed_cuts(roles: Sequence[LayerRole], cuts: Cuts) -> tuple[int, ...]:
    """The layers at which a stage may begin, and the number of layers.

    Args:
        roles: The roles of the layers.
        cuts: Where stages may begin. A model without blocks may be cut anywhere.
    """
    every = tuple(range(len(roles) + 1))
    if cuts == "layers" or not any(role.place == "block" for role in roles):
        return every
    if cuts == "between":
        between = [cut for cut in every[1:-1] if roles[cut - 1].place == roles[cut].place == "block"]
        return (0, *(cut for cut in between if not is_inside_block(roles, cut)), len(roles))
    ends = [] if cuts == "blocks" else ["before", "behind"]
    inner = [
        cut
        for cut in every[1:-1]
        if not is_inside_block(roles, cut)
        and not (roles[cut - 1].place == roles[cut].place and roles[cut].place in ends)
    ]
    return (0, *inner, len(roles))
