"""What the loss of each device and host would cost, and the expected time of a step under single losses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.adaptation.moves import find_moves, move_seconds
from penstock.cluster import Cluster
from penstock.errors import PenstockError
from penstock.plan import Plan
from penstock.planners.studies import Loss, plan_without, single_losses
from penstock.profile import Profile
from penstock.simulate import Evaluation

RESTART_S = 10.0
"""Seconds that are assumed for noticing a loss and starting processes again, beside moving state."""


@dataclass(frozen=True)
class LossPrice:
    """The price of a loss, and of the losses that are equal to it by symmetry.

    Attributes:
        loss: The device or host.
        alike: The names of the equal losses, this one included.
        evaluation: The plan for what remains, proved to fit into memory and simulated; None if there is none.
        problem: Why there is none.
        moved_bytes: Parameters and optimizer state that survivors must receive.
        recover_s: Seconds until the next step begins.
        steps_lost: Steps that are repeated: the one that was running, and with copies every k steps up to k more.
        needs_copy: Whether only lost devices held some of the state, so that it must come from a copy or a checkpoint.
    """

    loss: Loss
    alike: tuple[str, ...]
    evaluation: Evaluation | None
    problem: str = ""
    moved_bytes: float = 0.0
    recover_s: float = 0.0
    steps_lost: int = 0
    needs_copy: bool = False

    @property
    def iteration_s(self) -> float | None:
        """The predicted time of an iteration after the loss."""
        return None if self.evaluation is None else self.evaluation.timeline.iteration_s


@dataclass(frozen=True)
class FailureModel:
    """How often a device or host is lost, and for how long.

    Attributes:
        per_day: Losses per day of each device, and of each host as a whole.
        repair_s: Seconds until what was lost is back.
    """

    per_day: float
    repair_s: float


def price_losses(
    evaluation: Evaluation,
    profile: Profile,
    *,
    copy_every: int = 1,
    restart_s: float = RESTART_S,
    known: Sequence[LossPrice] = (),
    on_loss: Callable[[str], None] = lambda _name: None,
) -> tuple[LossPrice, ...]:
    """Price every single loss. Losses that are equal by symmetry are planned once.

    Args:
        evaluation: The plan, evaluated on its cluster.
        profile: Its profile.
        copy_every: Steps between two copies of the state in other hosts' memory, or between checkpoints.
        restart_s: Seconds to notice a loss and start again.
        known: Prices of the same losses for another plan with these micro-batches, whose replanned plans are used.
        on_loss: Called with the name of each loss before it is planned.
    """
    plan, cluster = evaluation.costs.plan, evaluation.costs.cluster
    classes: dict[object, list[Loss]] = {}
    for loss in single_losses(cluster):
        classes.setdefault(_signature(loss, cluster, plan), []).append(loss)
    found = {item.loss.devices: item.evaluation for item in known if item.evaluation is not None}
    prices = []
    for losses in classes.values():
        loss, alike = losses[0], tuple(item.name for item in losses)
        if not loss.devices & set(plan.devices):
            prices.append(LossPrice(loss, alike, evaluation))
            continue
        on_loss(loss.name)
        try:
            after = found.get(loss.devices) or plan_without(plan, profile, cluster, loss.devices)
        except PenstockError as error:
            prices.append(LossPrice(loss, alike, None, error.what))
            continue
        moves = find_moves(plan, after.costs.plan, profile, cluster, loss.devices)
        needs_copy = any(move.from_copy for move in moves)
        prices.append(
            LossPrice(
                loss,
                alike,
                after,
                moved_bytes=sum(move.num_bytes for move in moves),
                recover_s=restart_s + move_seconds(moves, cluster),
                steps_lost=copy_every if needs_copy else 1,
                needs_copy=needs_copy,
            )
        )
    return tuple(prices)


def expected_step_s(iteration_s: float, prices: Sequence[LossPrice], failures: FailureModel) -> float:
    """The expected time of a step: with recoveries, repeated steps, and slower iterations until the repair.

    Losses are rare, so that at most one is open at a time. A loss without a plan stops training until the repair.

    Args:
        iteration_s: The iteration time of the plan.
        prices: The prices of its single losses.
        failures: How often losses occur, and how long they last.

    Example:
        >>> expected_step_s(2.0, (), FailureModel(1.0, 3600.0))
        2.0
    """
    lost_share = 0.0
    for price in prices:
        after_s = price.iteration_s
        slower = 1.0 if after_s is None else 1 - iteration_s / after_s
        spent_s = price.recover_s + price.steps_lost * iteration_s + slower * failures.repair_s
        lost_share += failures.per_day / 86400 * len(price.alike) * spent_s
    return iteration_s * (1 + lost_share)


def _signature(loss: Loss, cluster: Cluster, plan: Plan) -> object:
    """Equal for losses that leave clusters which differ in names only, and hit as much of the plan."""
    used = set(plan.devices)
    if cluster.links:
        return loss.name, loss.is_host
    wires = {host.name: (host.inside, host.interface_bandwidth) for host in cluster.hosts}
    rows: dict[str, list[object]] = {}
    for device in cluster.devices:
        if device.name not in loss.devices:
            rows.setdefault(device.host, []).append((device.kind, device.speed, device.memory_bytes))
    hosts = sorted(repr((wires[name], sorted(map(repr, items)))) for name, items in rows.items())
    return tuple(hosts), loss.is_host, len(loss.devices & used)
