"""Checks before and during training: batches, buffers, profile drift, consistency between ranks."""

from penstock.runtime.checks.batch_shapes import BatchShapeCheck, batch_check_pairs
from penstock.runtime.checks.consistency import check_consistency, materialize_held, release_unused
from penstock.runtime.checks.profile_drift import ProfileDrift
from penstock.runtime.checks.shared_buffers import BufferChanges, SharedBufferCheck, shared_buffers

__all__ = [
    "BatchShapeCheck",
    "BufferChanges",
    "ProfileDrift",
    "SharedBufferCheck",
    "batch_check_pairs",
    "check_consistency",
    "materialize_held",
    "release_unused",
    "shared_buffers",
]
