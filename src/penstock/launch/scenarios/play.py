"""What the parts of a scenario's run share, and its results."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.adaptation import Outcome, Speeds, make_replanner
from penstock.cluster import Cluster, select_devices
from penstock.emulation import Emulation, Scenario
from penstock.errors import PenstockError
from penstock.planners.auto import WORK

RESTART_S = 3.0
"""Seconds of this machine that a change of plans is assumed to take beside moving state."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class PlayedStep:
    """A step as it was measured. A step that was repeated after a loss appears twice."""

    step: int
    at_s: float
    """When it ended, in the time of the scenario."""
    iteration_s: float
    plan: int
    """The number of the plan, from 0."""


@dataclass(frozen=True)
class PlanChange:
    """The step from which another plan ran, why, and how long the change took."""

    step: int
    why: str
    seconds: float
    """Of the cluster's time, without iterations."""
    predicted_s: float
    """The iteration time that is expected with the plan."""


@dataclass
class ScenarioRun:
    """The results of a scenario, complete or not."""

    steps: list[PlayedStep] = field(default_factory=list)
    changes: list[PlanChange] = field(default_factory=list)
    decisions: list[Outcome] = field(default_factory=list)
    steps_lost: int = 0
    was_stopped: bool = False
    failure: PenstockError | None = None
    log: str = ""


@dataclass(frozen=True)
class AdaptOptions:
    """Whether to adapt ("off", "advise" or "on"), and how many plans a search evaluates."""

    mode: str = "on"
    work: int = WORK


class Play:
    """The state of a run that its generations of ranks share.

    Args:
        emulation: The plan, the profile, the cluster, and the scenario.
        scenario: The scenario.
        options: How to adapt.
        log: Receives what happens, in sentences.
    """

    def __init__(self, emulation: Emulation, scenario: Scenario, options: AdaptOptions, log: Log) -> None:
        self.emulation = emulation
        self.scenario = scenario
        self.options = options
        self.log = log
        self.result = ScenarioRun()
        self.began_s = 0.0
        """When the first step began, on the clock of `time.monotonic`."""
        self.alive = {device.name for device in emulation.cluster.devices}
        self.speeds = Speeds()
        self.restart_s = RESTART_S / emulation.slow_down
        self.replan = make_replanner(emulation.profile, emulation.plan, work=options.work)
        self.plans = [emulation.plan]
        self._returns = list(scenario.of("back"))

    @property
    def now_s(self) -> float:
        """The time of the scenario."""
        return (time.monotonic() - self.began_s) / self.emulation.slow_down if self.began_s else 0.0

    @property
    def part(self) -> Cluster:
        """The devices that are left."""
        devices = self.emulation.cluster.devices
        return select_devices(
            self.emulation.cluster, [index for index, item in enumerate(devices) if item.name in self.alive]
        )

    def lose(self, device: str, step: int) -> int:
        """A device is lost in a step. Returns the step from which to go on."""
        self.alive.discard(device)
        saved = step // self.scenario.save_every * self.scenario.save_every
        self.result.steps_lost += step - saved
        return saved

    def returned(self) -> list[str]:
        """The lost devices that have come back by now."""
        due = [item for item in self._returns if item.at_s <= self.now_s and item.device not in self.alive]
        return [item.device for item in due]

    def bring_back(self, names: Sequence[str]) -> None:
        """Use devices again."""
        self.alive |= set(names)
        self._returns = [item for item in self._returns if item.device not in names]
