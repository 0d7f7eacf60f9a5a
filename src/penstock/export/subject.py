"""What is exported: a plan with the orders of its devices, its profile, its cluster, and its prediction."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from penstock.cluster import Cluster
from penstock.plan import Grid, Plan, find_grid
from penstock.profile import LayerRole, Profile, layer_roles
from penstock.program import Action
from penstock.simulate import Evaluation
from penstock.timeline import bubble_fraction, device_uses


@dataclass(frozen=True)
class Prediction:
    """The simulated figures of the plan.

    Attributes:
        iteration_s: Iteration time.
        rows: Rows of an iteration.
        bubble_fraction: The part of the devices' time in which they do not compute.
        peak_bytes: Peak memory by device.
    """

    iteration_s: float
    rows: int
    bubble_fraction: float
    peak_bytes: Mapping[str, float]


@dataclass(frozen=True)
class Subject:
    """A plan to export.

    Attributes:
        plan: The plan.
        profile: The profile that it was made for.
        cluster: The cluster that it was made for.
        orders: The compute actions of every device that has any, in order.
        prediction: The simulated figures.
    """

    plan: Plan
    profile: Profile
    cluster: Cluster
    orders: Mapping[str, tuple[Action, ...]]
    prediction: Prediction

    @cached_property
    def roles(self) -> tuple[LayerRole, ...]:
        """The roles of the profile's layers."""
        return layer_roles(self.layer_names)

    @cached_property
    def layer_names(self) -> tuple[str, ...]:
        """The names of the profile's layers."""
        return tuple(unit.name for unit in self.profile.units)

    @cached_property
    def grid(self) -> Grid:
        """The pipeline ranks and replicas.

        Raises:
            ValueError: The plan is no grid of pipeline ranks and replicas.
        """
        return find_grid(self.plan)

    @property
    def rows_per_replica(self) -> int:
        """Rows of a micro-batch on each replica of a plan with equal replicas."""
        return self.plan.micro_batch_size // self.grid.num_replicas


def make_subject(evaluation: Evaluation, profile: Profile) -> Subject:
    """What to export of an evaluated plan."""
    costs, program = evaluation.costs, evaluation.program
    orders = {
        device: tuple(action for action in program.actions(device) if action.kind.is_pass) for device in program.devices
    }
    uses = device_uses(evaluation.timeline)
    plan = costs.plan
    return Subject(
        plan=plan,
        profile=profile,
        cluster=costs.cluster,
        orders={device: order for device, order in orders.items() if order},
        prediction=Prediction(
            iteration_s=evaluation.timeline.iteration_s,
            rows=plan.num_microbatches * plan.micro_batch_size,
            bubble_fraction=bubble_fraction(evaluation.timeline),
            peak_bytes={use.device: use.peak_bytes for use in uses if orders.get(use.device)},
        ),
    )
