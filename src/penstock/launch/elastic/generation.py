"""A generation: one set of ranks that trains with one plan."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.cluster import Cluster
from penstock.dist import RankModule, RankTemplate
from penstock.launch.elastic.plan_shelf import ShelvedPlan
from penstock.launch.hosts import RANK_PRELOAD
from penstock.launch.runs import SWITCH, Event, LocalRanks, Run, run_ranks, stop_file
from penstock.launch.train_options import TrainOptions

RANK_MODULE = "penstock.launch.ranks.train_main"
KILL_S = 0.0
"""Once it is known which rank is lost, the others are killed at once: their state is in the copies."""


@dataclass(frozen=True)
class Generation:
    """One set of ranks.

    Attributes:
        number: Its number, larger than that of all before.
        plan: The plan that it trains with.
        cluster: The whole cluster.
        options: The options of the ranks; their plan is replaced.
        folder: The directory of this generation's run.
        copies: The directory in memory for copies, the same for all generations.
        copy_every: Steps between two copies.
        until: It ends like after `switch` when this many steps are done; None: only if it is asked to.
    """

    number: int
    plan: ShelvedPlan
    cluster: Cluster
    options: TrainOptions
    folder: Path
    copies: Path
    copy_every: int
    until: int | None = None

    @property
    def module(self) -> RankModule:
        """What its ranks run."""
        arguments = [
            *replace(self.options, plan=str(self.plan.path)).arguments,
            *("--events", str(self.folder), "--slices", str(self.plan.slices), "--copies", str(self.copies)),
            *("--generation", str(self.number), "--copy-every", str(self.copy_every)),
            *(() if self.until is None else ("--until", str(self.until))),
        ]
        return RankModule(RANK_MODULE, arguments, RANK_PRELOAD)

    def switch(self) -> None:
        """Ask the ranks to finish their step, complete a copy of their state, and end. Once is enough."""
        path = stop_file(self.folder)
        if not path.exists():
            path.write_text(SWITCH)

    def run(
        self,
        template: RankTemplate | None,
        *,
        on_event: Callable[[Run, Event], None],
        on_output: Callable[[str], None],
        on_poll: Callable[[], None],
        may_stop: bool,
    ) -> Run:
        """Run the ranks until they end.

        Args:
            template: The process that forks them; None: each is started anew.
            on_event: Called with every event.
            on_output: Called with every line that rank 0 prints.
            on_poll: Called many times a second. It may call `switch`.
            may_stop: As for `run_ranks`.
        """
        devices = self.plan.devices
        return run_ranks(
            LocalRanks(self.module, len(devices), template=template, local_ranks=self._local_ranks()),
            self.folder,
            range(len(devices)),
            devices=devices,
            stopped_s=self.options.timeout,
            may_stop=may_stop,
            on_event=on_event,
            on_output=on_output,
            on_poll=on_poll,
            kill_s=KILL_S,
        )

    def _local_ranks(self) -> Sequence[int]:
        """The number of each device on its host, which selects the accelerator of a rank."""
        numbers: dict[str, int] = {}
        counts: dict[str, int] = {}
        for device in self.cluster.devices:
            numbers[device.name] = counts.get(device.host, 0)
            counts[device.host] = numbers[device.name] + 1
        hosts = {device.host for device in self.cluster.devices if device.name in self.plan.devices}
        return [numbers[name] for name in self.plan.devices] if len(hosts) == 1 else range(len(self.plan.devices))
