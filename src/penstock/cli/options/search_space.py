"""What the planner auto is asked: which freedoms it has, and how long it may search."""

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
    """What was asked of auto; nothing, if nothing was given."""

    search_space: SearchSpace = field(default_factory=SearchSpace)
    budget: str | None = None
    work: int | None = None
    seed: int | None = None

    @property
    def is_given(self) -> bool:
        """Whether anything was asked."""
        return self != AutoOptions()

    def refuse(self, planner: str) -> None:
        """Say that another planner cannot do any of that."""
        if self.is_given:
            raise InputError(
                f"--budget, --work, --seed and the freedoms are for the planner auto, not for {planner}",
                hint="Leave --planner out, or write --planner auto.",
            )


_SWITCHES = (
    ("replication", "--no-replication", "one device a stage."),
    ("two_cuts", "--one-cut", "forward and backward cut at the same places."),
    ("virtual_stages", "--no-virtual-stages", "one run of units a device, forward and backward."),
    ("split_backward", "--no-backward-split", "both gradients of a stage in one job."),
    ("recomputation", "--no-recomputation", "keep what the forward saves."),
    ("device_order", "--fixed-order", "take the devices in the cluster's own order."),
    ("part_rows", "--whole-rows", "give every device of a group whole rows of a micro-batch."),
)


def auto_options(verb: F) -> F:
    """The freedoms, --budget, --work and --seed; the verb gets them as `searching`."""

    @wraps(verb)
    def wrapped(budget: str | None, work: int | None, seed: int | None, **options: Any) -> Any:
        if budget is not None and work is not None:
            raise InputError("--budget and --work both say when to stop", hint="Give one of them.")
        has = {name: not options.pop(f"without_{name}") for name, _, _ in _SWITCHES}
        search_space = SearchSpace(
            replication=has["replication"],
            two_cuts=has["two_cuts"],
            virtual_stages=has["virtual_stages"],
            split_backward=has["split_backward"],
            recomputation=has["recomputation"],
            device_order=has["device_order"],
            part_rows=has["part_rows"],
        )
        return verb(searching=AutoOptions(search_space, budget, work, seed), **options)

    for name, switch, what in reversed(_SWITCHES):
        wrapped = click.option(switch, f"without_{name}", is_flag=True, help=f"For auto: {what}")(wrapped)
    for option in (
        click.option("--seed", type=int, help="For auto: where its random changes begin; 0 if not given."),
        click.option("--work", type=int, help="For auto: how many plans to look at; the same work, the same plan."),
        click.option("--budget", help="For auto: how long to search, such as 30s; Ctrl-C takes the best so far."),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
