"""Options of planning: the search space, and how long the planner auto searches."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

import click

from penstock.errors import InputError
from penstock.planners import SearchSpace

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class AutoOptions:
    """The search space of the plan, and options of the planner auto."""

    search_space: SearchSpace = field(default_factory=SearchSpace)
    budget: str | None = None
    work: int | None = None
    seed: int | None = None
    risk: float | None = None

    def refuse(self, planner: str) -> None:
        """Raise an error if an option of the search is set: other planners do not search."""
        if any(value is not None for value in (self.budget, self.work, self.seed, self.risk)):
            raise InputError(
                f"--budget, --work, --seed and --risk require the planner auto, not {planner}",
                hint="Leave --planner out, or use --planner auto.",
            )


_SWITCHES = (
    ("replication", "--no-replication", "one device per stage."),
    ("two_cuts", "--one-cut", "the same cuts for forward and backward."),
    ("virtual_stages", "--no-virtual-stages", "one stage per device."),
    ("split_backward", "--no-backward-split", "fused backwards only."),
    ("recomputation", "--no-recomputation", "keep all saved tensors."),
    ("sharded_optimizer", "--no-sharded-optimizer", "the whole optimizer state on every replica."),
    ("device_order", "--fixed-order", "keep the devices in the cluster's order."),
    (
        "unequal_replicas",
        "--equal-replicas",
        "the same number of replicas for all stages, with equal shares of the rows.",
    ),
    ("part_rows", "--whole-rows", "every replica gets an integer number of rows of a micro-batch."),
)


def auto_options(verb: F) -> F:
    """Add the search-space switches, --budget, --work, --seed and --risk; the command gets them as `searching`."""

    @wraps(verb)
    def wrapped(budget: str | None, work: int | None, seed: int | None, risk: float | None, **options: Any) -> Any:
        if risk is not None and not 0 < risk < 1:
            raise InputError(f"--risk ({risk:g}) must be between 0 and 1", hint="Use, for example, --risk 0.9.")
        if budget is not None and work is not None:
            raise InputError("--budget and --work are mutually exclusive", hint="Use one of them.")
        has = {name: not options.pop(f"without_{name}") for name, _, _ in _SWITCHES}
        search_space = SearchSpace(
            replication=has["replication"],
            two_cuts=has["two_cuts"],
            virtual_stages=has["virtual_stages"],
            split_backward=has["split_backward"],
            recomputation=has["recomputation"],
            sharded_optimizer=has["sharded_optimizer"],
            device_order=has["device_order"],
            part_rows=has["part_rows"],
            unequal_replicas=has["unequal_replicas"],
            unequal_shares=has["unequal_replicas"],
        )
        return verb(searching=AutoOptions(search_space, budget, work, seed, risk), **options)

    for name, switch, what in reversed(_SWITCHES):
        wrapped = click.option(switch, f"without_{name}", is_flag=True, help=f"{what[0].upper()}{what[1:]}")(wrapped)
    for option in (
        click.option(
            "--risk",
            type=float,
            help="For auto: choose by this quantile of the predicted time, such as 0.9 [default: the expected time].",
        ),
        click.option("--seed", type=int, help="For auto: seed of its random changes [default: 0]."),
        click.option(
            "--work", type=int, help="For auto: number of plans to evaluate; the same number gives the same plan."
        ),
        click.option("--budget", help="For auto: time limit, such as 30s; Ctrl-C keeps the best plan so far."),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
