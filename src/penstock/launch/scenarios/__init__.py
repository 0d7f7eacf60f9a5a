"""Scenarios: emulated runs in which devices and links slow down, recover, are lost and come back."""

from penstock.launch.scenarios.play import AdaptOptions, PlanChange, PlayedStep, ScenarioRun
from penstock.launch.scenarios.player import play_scenario

__all__ = ["AdaptOptions", "PlanChange", "PlayedStep", "ScenarioRun", "play_scenario"]
