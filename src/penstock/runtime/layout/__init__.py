"""Layout of a plan on ranks, and compilation into a proved program."""

from penstock.runtime.layout.compile import PLACEHOLDER_KIND, compile_plan, placeholder_profile
from penstock.runtime.layout.layout import (
    Layout,
    StageView,
    compiled_over_rows,
    find_grad_owners,
    find_links,
    find_split_backwards,
    make_layout,
    sums_over_rows,
)
from penstock.runtime.layout.planned_model import check_planned_model
from penstock.runtime.layout.replica_sync_proof import check_replica_sync

__all__ = [
    "PLACEHOLDER_KIND",
    "Layout",
    "StageView",
    "check_planned_model",
    "check_replica_sync",
    "compile_plan",
    "compiled_over_rows",
    "find_grad_owners",
    "find_links",
    "find_split_backwards",
    "make_layout",
    "placeholder_profile",
    "sums_over_rows",
]
