"""A plan from the view of one rank."""

from penstock.runtime.layout.compile import KIND, neutral_profile, prove_plan
from penstock.runtime.layout.layout import (
    Layout,
    StageView,
    check_units,
    first_trainers,
    links_of,
    make_layout,
    split_jobs,
)
from penstock.runtime.layout.replica_sync_proof import check_meetings

__all__ = [
    "KIND",
    "Layout",
    "StageView",
    "check_meetings",
    "check_units",
    "first_trainers",
    "links_of",
    "make_layout",
    "neutral_profile",
    "prove_plan",
    "split_jobs",
]
