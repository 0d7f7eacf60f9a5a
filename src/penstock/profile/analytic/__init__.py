"""Profiles computed from a model's configuration and device data sheets, without the hardware (docs/analytic.md)."""

from penstock.profile.analytic.architectures import ARCHITECTURES
from penstock.profile.analytic.build import analytic_profile
from penstock.profile.analytic.builtin import BUILTIN_NAMES
from penstock.profile.analytic.configs import ParsedConfig, read_config

__all__ = ["ARCHITECTURES", "BUILTIN_NAMES", "ParsedConfig", "analytic_profile", "read_config"]
