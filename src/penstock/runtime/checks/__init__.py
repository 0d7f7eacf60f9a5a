"""Checks before and during training: batches, buffers, profile drift, consistency between ranks."""

from penstock.runtime.checks.batch_shapes import SameBatches, told_forms
from penstock.runtime.checks.consistency import check_same, let_go, make_held
from penstock.runtime.checks.profile_drift import Profiled
from penstock.runtime.checks.shared_buffers import SharedBuffers

__all__ = ["Profiled", "SameBatches", "SharedBuffers", "check_same", "let_go", "make_held", "told_forms"]
