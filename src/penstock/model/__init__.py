"""A torch module as a chain of blocks. Everything here needs torch."""

from penstock.model.allocator import keep_freed_memory
from penstock.model.blocks import Block, Carry, find_blocks, is_plain_sequential, shared_parameters
from penstock.model.compiled import is_compiled
from penstock.model.detach import as_leaves, needs_gradient
from penstock.model.device_kind import kind_of, own_gpu
from penstock.model.state import undone
from penstock.model.trees import bytes_of, map_tensors, rows_of, tensors_of, with_rows

__all__ = [
    "Block",
    "Carry",
    "as_leaves",
    "bytes_of",
    "find_blocks",
    "is_compiled",
    "is_plain_sequential",
    "keep_freed_memory",
    "kind_of",
    "map_tensors",
    "needs_gradient",
    "own_gpu",
    "rows_of",
    "shared_parameters",
    "tensors_of",
    "undone",
    "with_rows",
]
