"""Payloads between stages, batches and rows."""

from penstock.runtime.tensors.batch import count_rows, signature, some_rows
from penstock.runtime.tensors.packing import (
    VALUE,
    Form,
    Packed,
    TensorForm,
    difference,
    from_form,
    in_memory_order,
    join_gradients,
    join_rows,
    pack,
    share_memory,
    take_rows,
    unpack,
)
from penstock.runtime.tensors.rows import Rows, microbatch_rows, replica_rows

__all__ = [
    "VALUE",
    "Form",
    "Packed",
    "Rows",
    "TensorForm",
    "count_rows",
    "difference",
    "from_form",
    "in_memory_order",
    "join_gradients",
    "join_rows",
    "microbatch_rows",
    "pack",
    "replica_rows",
    "share_memory",
    "signature",
    "some_rows",
    "take_rows",
    "unpack",
]
