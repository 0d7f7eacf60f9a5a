"""The spread of a profile's times: how far those of training may lie from them, measured or assumed."""

from penstock.profile.spread.assumed import COMPUTED, PUBLISHED, UNSTATED, measured_spread
from penstock.profile.spread.spread import PARTS, Spread

__all__ = ["COMPUTED", "PARTS", "PUBLISHED", "UNSTATED", "Spread", "measured_spread"]
