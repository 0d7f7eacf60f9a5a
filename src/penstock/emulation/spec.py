"""The specification of an emulation, and its file."""

from functools import cached_property
from pathlib import Path

import msgspec

from penstock import io
from penstock.cluster import Cluster
from penstock.emulation.faults import Faults
from penstock.emulation.scenario import Scenario
from penstock.plan import Plan
from penstock.plan.pricing import Costs, price
from penstock.profile import Profile
from penstock.program import Program, load_program
from penstock.simulate import Evaluation, evaluate_costs

FORMAT = "penstock.emulation/3"

DEFAULT_STEPS = 3
DEFAULT_TIMEOUT_S = 120.0


class Emulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """A plan on a cluster, and how to emulate it."""

    format: str = FORMAT
    plan: Plan
    profile: Profile
    cluster: Cluster
    program: str | None = None
    """File of the program to run, if it is not that of the plan's schedule."""
    slow_down: float = 1.0
    """Seconds of this machine for one second of the cluster."""
    num_steps: int = DEFAULT_STEPS
    is_shaped: bool = True
    """Whether links are shaped. Otherwise all ranks communicate over loopback, at the speed of this machine."""
    script: str | None = None
    """Script of a model. With it devices compute, at the speed of this machine; without it they sleep."""
    faults: Faults = Faults()
    scenario: Scenario | None = None
    """What happens over time. Then every device of the cluster has a rank, whether the plan uses it or not."""
    believed: Cluster | None = None
    """The cluster that the plan was made for, where speeds were estimated to differ from `cluster`."""
    first_step: int = 0
    began_s: float = 0.0
    """When the scenario began, on the clock of `time.monotonic`; 0: it begins with the first step."""
    resumed_s: float = -1.0
    """The time of the scenario from which devices are lost; those of before are gone already."""
    timeout_s: float = DEFAULT_TIMEOUT_S

    @cached_property
    def evaluation(self) -> Evaluation:
        """The plan, proved and simulated without faults and without memory limits."""
        costs = price(self.plan, self.profile, self.believed or self.cluster, strict=False)
        program: Program | None = None if self.program is None else load_program(self.program)
        return evaluate_costs(costs, program=program, within_memory=False)

    @cached_property
    def costs(self) -> Costs:
        """The costs of the plan on the cluster, by which devices sleep."""
        return price(self.plan, self.profile, self.cluster, strict=False)

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The devices in use, in the order of the cluster, by rank."""
        if self.scenario is not None:
            return tuple(device.name for device in self.cluster.devices)
        used = set(self.plan.devices)
        return tuple(device.name for device in self.cluster.devices if device.name in used)


def save_emulation(emulation: Emulation, path: Path) -> None:
    """Write an emulation to a file."""
    io.write_whole(path, io.encode_json(emulation))


def load_emulation(path: Path) -> Emulation:
    """Read an emulation from a file."""
    return io.decode_json(io.read_bytes(path), Emulation, where=str(path), expected_format=FORMAT)
