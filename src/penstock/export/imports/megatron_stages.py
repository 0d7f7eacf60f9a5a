"""The cuts of a layout string or a hybrid layer pattern of Megatron-Core."""

import re
from collections.abc import Sequence

from penstock.errors import InputError
from penstock.export.stage_blocks import SYMBOLS
from penstock.profile import LayerRole

MAX_SYMBOLS = 100_000
_GROUP = re.compile(r"\(([^()]*)\)\*(\d{1,5})")
_SYMBOL = re.compile(r"([A-Za-z|])\*(\d{1,5})")


def megatron_cuts(text: str, roles: Sequence[LayerRole], *, where: str) -> tuple[int, ...]:
    """The index of the first layer of every stage, and the number of layers.

    Args:
        text: The argument of --pipeline-model-parallel-layout, or of --hybrid-layer-pattern.
        roles: The roles of the profile's layers.
        where: What to name in errors.

    Raises:
        InputError: The text is neither, or is for another model.
    """
    is_layout = "t" in text or "L" in text
    stages = expand_layout(text, where=where).split("|") if is_layout else text.split("|")
    for number, stage in enumerate(stages):
        if not stage:
            raise InputError(f"stage {number} is empty", where=where, hint="Penstock's stages have at least one layer.")
    return _layout_cuts(stages, roles, where) if is_layout else _pattern_cuts(stages, roles, where)


def expand_layout(text: str, *, where: str) -> str:
    """Write out the repetitions of a layout.

    >>> expand_layout("Et*3|(tt|)*2tL", where="layout")
    'Ettt|tt|tt|tL'
    """
    for pattern in (_GROUP, _SYMBOL):
        length = len(text) + sum(len(match[1]) * int(match[2]) for match in pattern.finditer(text))
        if length > MAX_SYMBOLS:
            raise InputError(f"the layout has more than {MAX_SYMBOLS:,} symbols", where=where)
        text = pattern.sub(lambda match: match[1] * int(match[2]), text)
    text = text.replace(",", "")
    unknown = sorted(set(text) - set("EtL|"))
    if unknown:
        what = "multi-token prediction (m) is not in profiles" if unknown == ["m"] else f"unknown symbol {unknown[0]!r}"
        raise InputError(what, where=where, hint="A layout has E, t, L and |, with repetitions such as t*4 or (tt|)*3.")
    return text


def _layout_cuts(stages: Sequence[str], roles: Sequence[LayerRole], where: str) -> tuple[int, ...]:
    symbols = "".join(stages)
    if symbols.count("E") != 1 or symbols.count("L") != 1 or symbols[0] != "E" or symbols[-1] != "L":
        raise InputError("a layout begins with E, ends with L, and has each once", where=where)
    spans = _block_spans(roles, where)
    if symbols.count("t") != len(spans):
        what = f"the layout has {symbols.count('t')} blocks, the model has {len(spans)}"
        raise InputError(what, where=where, hint="Use the layout of this model.")
    starts = {"E": [0], "t": [start for start, _ in spans], "L": [spans[-1][1]]}
    return (
        *(starts[stage[0]][_count_before(stages, number, stage[0])] for number, stage in enumerate(stages)),
        len(roles),
    )


def _count_before(stages: Sequence[str], number: int, symbol: str) -> int:
    return sum(stage.count(symbol) for stage in stages[:number])


def _block_spans(roles: Sequence[LayerRole], where: str) -> list[tuple[int, int]]:
    """The first layer of every block and the one after its last."""
    blocks = dict.fromkeys(role[1:3] for role in roles if role.place == "block")
    has_ends = roles[0].place == "before" and roles[-1].place == "behind"
    if not has_ends or len({stack for stack, _ in blocks}) != 1 or any(role.place == "between" for role in roles):
        what = "the model is not one stack of numbered blocks between an embedding and a head"
        raise InputError(what, where=where)
    indices = {block: [index for index, role in enumerate(roles) if role[1:3] == block] for block in blocks}
    return [(index[0], index[-1] + 1) for index in indices.values()]


def _pattern_cuts(stages: Sequence[str], roles: Sequence[LayerRole], where: str) -> tuple[int, ...]:
    spans = _block_spans(roles, where)
    first, last = spans[0][0], spans[-1][1]
    model = "".join(SYMBOLS.get(role.part, "?") for role in roles[first:last])
    pattern = "".join(stages)
    if pattern != model:
        at = next((index for index, pair in enumerate(zip(pattern, model, strict=False)) if pair[0] != pair[1]), None)
        what = (
            f"the pattern has {len(pattern)} layers, the model has {len(model)}"
            if at is None
            else f"layer {at} of the pattern is {pattern[at]!r}, the model has {_name(roles[first + at])} there"
        )
        raise InputError(what, where=where, hint="* is attention, - an MLP, E experts, | the next stage.")
    sizes = [len(stage) for stage in stages]
    return (0, *(first + sum(sizes[:number]) for number in range(1, len(stages))), len(roles))


def _name(role: LayerRole) -> str:
    return f"the part {role.part!r} of block {role.block}" if role.part else f"the undivided block {role.block}"
