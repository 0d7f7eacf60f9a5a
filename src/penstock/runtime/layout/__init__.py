"""Layout of a plan on ranks, and compilation into a proved program."""

from penstock.runtime.layout.batch_rows import BatchRows
from penstock.runtime.layout.compile import PLACEHOLDER_KIND, compile_plan, placeholder_profile, price_plan, prove_plan
from penstock.runtime.layout.layout import (
    Layout,
    Reducer,
    StageView,
    compiled_over_rows,
    find_grad_owners,
    find_links,
    find_split_backwards,
    make_layout,
    place_on_ranks,
    sums_over_rows,
)
from penstock.runtime.layout.planned_model import check_planned_model
from penstock.runtime.layout.rank_devices import assign_ranks, check_kinds
from penstock.runtime.layout.replica_sync_proof import check_replica_sync, has_unproved_sync

__all__ = [
    "PLACEHOLDER_KIND",
    "BatchRows",
    "Layout",
    "Reducer",
    "StageView",
    "assign_ranks",
    "check_kinds",
    "check_planned_model",
    "check_replica_sync",
    "compile_plan",
    "compiled_over_rows",
    "find_grad_owners",
    "find_links",
    "find_split_backwards",
    "has_unproved_sync",
    "make_layout",
    "place_on_ranks",
    "placeholder_profile",
    "price_plan",
    "prove_plan",
    "sums_over_rows",
]
