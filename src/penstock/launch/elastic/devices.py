"""Checks of lost devices: whether a process can compute on them again."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.dist import Launcher, Process, RankModule, RankTemplate

CHECK_MODULE = "penstock.launch.elastic.device_main"
NOWHERE = Path(os.devnull)


class DeviceChecks:
    """Checks that run in processes of their own, beside training.

    Args:
        launcher: Starts the processes. Their failure must not end others.
        template: The template that forks them, if there is one.
        folder: A directory that only this user can open.
        local_ranks: The number of each device on its host.
        requested: The option `--device`; None: the default.
    """

    def __init__(
        self,
        launcher: Launcher,
        template: RankTemplate | None,
        folder: Path,
        local_ranks: Mapping[str, int],
        requested: str | None,
    ) -> None:
        self._launcher, self._template, self._folder = launcher, template, folder
        self._local_ranks, self._requested = local_ranks, requested
        self._running: dict[str, Process] = {}

    def begin(self, devices: Sequence[str]) -> None:
        """Begin to check devices that are not being checked."""
        for name in devices:
            if name not in self._running:
                module = RankModule(CHECK_MODULE, [self._requested or "auto"])
                self._launcher.start_ranks(
                    module,
                    1,
                    self._folder,
                    stdout=NOWHERE,
                    stderr=lambda _rank: NOWHERE,
                    template=self._template,
                    local_ranks=[self._local_ranks[name]],
                    OMP_NUM_THREADS="1",
                )
                self._running[name] = self._launcher.processes[-1]

    def ended(self) -> dict[str, bool]:
        """The checks that have ended since the last call: by device, whether it works."""
        self._launcher.poll()
        results = {name: item.code == 0 for name, item in self._running.items() if item.code is not None}
        for name in results:
            del self._running[name]
        return results
