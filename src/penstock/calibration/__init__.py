"""Calibration: adapting a profile to iterations that were measured."""

from penstock.calibration.fit import Calibration, Factor, calibrate
from penstock.calibration.observation import Observation

__all__ = ["Calibration", "Factor", "Observation", "calibrate"]
