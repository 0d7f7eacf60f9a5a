"""A torch module as a chain of blocks that run one at a time. Requires torch."""

from penstock.model.allocator import keep_freed_memory, return_freed_memory
from penstock.model.block_forward import PartialForward, training_only
from penstock.model.blocks import Activations, Block, call_model, find_blocks, is_plain_sequential, shared_parameters
from penstock.model.detach import as_leaves, needs_gradient
from penstock.model.loss import LossFunction, LossValue, is_own_loss, mean_loss, own_loss, read_loss
from penstock.model.placement import move_model
from penstock.model.requirements import is_compiled, require_plain_parameters, require_separate_launches
from penstock.model.row_lists import RowList, is_row_list, map_batch, resized, split_batch
from penstock.model.state import eval_mode, preserve_state, without_auxiliary_losses
from penstock.model.tracing import function_name, is_metadata_query
from penstock.model.trees import bytes_of, check_rows, map_tensors, plain_inputs, rows_of, tensors_of, with_rows

__all__ = [
    "Activations",
    "Block",
    "LossFunction",
    "LossValue",
    "PartialForward",
    "RowList",
    "as_leaves",
    "bytes_of",
    "call_model",
    "check_rows",
    "eval_mode",
    "find_blocks",
    "function_name",
    "is_compiled",
    "is_metadata_query",
    "is_own_loss",
    "is_plain_sequential",
    "is_row_list",
    "keep_freed_memory",
    "map_batch",
    "map_tensors",
    "mean_loss",
    "move_model",
    "needs_gradient",
    "own_loss",
    "plain_inputs",
    "preserve_state",
    "read_loss",
    "require_plain_parameters",
    "require_separate_launches",
    "resized",
    "return_freed_memory",
    "rows_of",
    "shared_parameters",
    "split_batch",
    "tensors_of",
    "training_only",
    "with_rows",
    "without_auxiliary_losses",
]
