"""Opening a plan or program file with the profile and the cluster that it was made for."""

from penstock.bundle.reader import PlanBundle, format_of, open_plan
from penstock.bundle.sources import ProfileSource, known_kinds

__all__ = ["PlanBundle", "ProfileSource", "format_of", "known_kinds", "open_plan"]
