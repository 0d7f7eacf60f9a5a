"""Payloads, batches and rows."""

from penstock.runtime.tensors.batch import count_rows, has_rows, signature, slice_rows
from penstock.runtime.tensors.grad_types import grad_dtype
from penstock.runtime.tensors.packing import (
    NOT_A_TENSOR,
    PackedPayload,
    PayloadMeta,
    TensorMeta,
    describe_difference,
    flatten_dense,
    join_gradients,
    join_rows,
    pack,
    payload_from_meta,
    share_memory,
    slice_payload,
    unpack,
)
from penstock.runtime.tensors.rows import Rows, microbatch_rows, replica_rows

__all__ = [
    "NOT_A_TENSOR",
    "PackedPayload",
    "PayloadMeta",
    "Rows",
    "TensorMeta",
    "count_rows",
    "describe_difference",
    "flatten_dense",
    "grad_dtype",
    "has_rows",
    "join_gradients",
    "join_rows",
    "microbatch_rows",
    "pack",
    "payload_from_meta",
    "replica_rows",
    "share_memory",
    "signature",
    "slice_payload",
    "slice_rows",
    "unpack",
]
