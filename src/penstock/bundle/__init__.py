"""Opening a plan or program file with the profile and the cluster that it was made for."""

from penstock.bundle.reader import PlanBundle, format_of, open_plan
from penstock.bundle.sources import Precision, ProfileSource, known_kinds

__all__ = ["PlanBundle", "Precision", "ProfileSource", "format_of", "known_kinds", "open_plan"]
