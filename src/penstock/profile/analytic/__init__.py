"""Profiles computed from a model's description, for people without the hardware (docs/analytic.md)."""

from penstock.profile.analytic.build import analytic_profile
from penstock.profile.analytic.builtin import BUILTIN_NAMES
from penstock.profile.analytic.configs import ReadConfig, read_config

__all__ = ["BUILTIN_NAMES", "ReadConfig", "analytic_profile", "read_config"]
