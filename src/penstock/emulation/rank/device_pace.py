"""How fast an emulated device is at a moment of a scenario."""

import math
import time

import numpy as np

from penstock.emulation.spec import Emulation


class DevicePace:
    """By how much longer than planned each action takes, as the scenario and its noise have it.

    Args:
        emulation: The emulation.
        device: The name of the device.
        rank: Its rank.
    """

    def __init__(self, emulation: Emulation, device: str, rank: int) -> None:
        self._scenario = emulation.scenario
        self._device, self._rank = device, rank
        self._slow_down = emulation.slow_down
        self._began_s = emulation.began_s
        self._resumed_s = emulation.resumed_s
        self._slowness = 1.0
        self._hangs = False
        self._random = np.random.default_rng()

    def begin(self, step: int, at_s: float) -> None:
        """Begin an iteration at a time of `time.perf_counter`."""
        if self._scenario is None:
            return
        self._began_s = self._began_s or at_s
        now_s = (at_s - self._began_s) / self._slow_down
        self._random = np.random.default_rng([self._scenario.seed, self._rank, step])
        self._slowness = self._scenario.slowness(self._device, now_s) * self._draw()
        self._hangs = any(
            item.device == self._device and self._resumed_s < item.at_s <= now_s for item in self._scenario.of("hang")
        )

    def __call__(self) -> float:
        """For the next action. A device that hangs never returns."""
        if self._scenario is None:
            return 1.0
        while self._hangs:
            time.sleep(1.0)
        return self._slowness * self._draw()

    def _draw(self) -> float:
        assert self._scenario is not None
        return math.exp(self._scenario.noise * float(self._random.standard_normal())) if self._scenario.noise else 1.0
