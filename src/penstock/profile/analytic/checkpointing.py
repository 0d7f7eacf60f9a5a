"""Activation checkpointing inside layers: what is saved less, and which kernels run again."""

from itertools import pairwise

import msgspec

from penstock.profile.analytic.model_parts import Design, Part
from penstock.profile.recipe import Checkpointing


def with_checkpointing(design: Design, checkpointing: Checkpointing) -> Design:
    """Return a model whose layers between the first and the last use activation checkpointing.

    Args:
        design: The model without it.
        checkpointing: "none"; "selective": what attention can compute again from q, k and v is not saved; "full": a
            layer keeps its input, and its whole forward runs again before its backward.
    """
    if checkpointing == "none":
        return design
    before = {layer.part: design.parts[earlier.part].cut_bytes for earlier, layer in pairwise(design.chain)}
    inside = {layer.part for layer in design.chain[1:-1]} - {design.chain[0].part, design.chain[-1].part}
    parts = {
        name: (_selective(part) if checkpointing == "selective" else _full(part, before[name]))
        if name in inside
        else part
        for name, part in design.parts.items()
    }
    return msgspec.structs.replace(design, parts=parts)


def _full(part: Part, input_bytes: int) -> Part:
    rerun = tuple(kernel for operation in part.operations for kernel in operation.forward)
    return msgspec.structs.replace(part, rerun=rerun, kept_bytes=min(input_bytes, part.all_saved_bytes))


def _selective(part: Part) -> Part:
    again = [operation for operation in part.operations if operation.recomputed_bytes]
    rerun = tuple(kernel for operation in again for kernel in operation.forward)
    freed = sum(operation.recomputed_bytes for operation in again)
    return msgspec.structs.replace(part, rerun=rerun, kept_bytes=part.all_saved_bytes - freed)
