"""Options for pricing the loss of devices and hosts in advance."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from penstock.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_FAILURES_PER_DAY = 0.01
DEFAULT_REPAIR_H = 4.0


@dataclass(frozen=True)
class LossOptions:
    """Whether to price losses, whether the plan must survive them, and how often they occur."""

    is_priced: bool = False
    survive: int = 0
    per_day: float | None = None
    repair_h: float | None = None
    copy_every: int = 1

    def __post_init__(self) -> None:
        if not self.survive and (self.per_day is not None or self.repair_h is not None):
            raise InputError("--failures-per-day and --repair-hours require --survive 1", hint="Add --survive 1.")

    @property
    def repair_s(self) -> float:
        """Seconds until a lost device is back."""
        return 3600 * (DEFAULT_REPAIR_H if self.repair_h is None else self.repair_h)

    @property
    def failures_per_day(self) -> float:
        """Losses per day of each device and of each host."""
        return DEFAULT_FAILURES_PER_DAY if self.per_day is None else self.per_day


def loss_options(verb: F) -> F:
    """Add --losses, --survive and how often losses occur; the command gets them as `losses`."""

    @wraps(verb)
    def wrapped(
        losses: bool,
        survive: int,
        failures_per_day: float | None,
        repair_hours: float | None,
        copy_every: int,
        **options: Any,
    ) -> Any:
        chosen = LossOptions(losses or survive > 0, survive, failures_per_day, repair_hours, copy_every)
        return verb(losses=chosen, **options)

    for option in (
        click.option(
            "--copy-every",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="With --losses: steps between two copies of the state in other hosts' memory, or two checkpoints.",
        ),
        click.option(
            "--repair-hours",
            type=click.FloatRange(min=0, min_open=True, max=1e6),
            help=f"With --survive: hours until what was lost is back [default: {DEFAULT_REPAIR_H:g}].",
        ),
        click.option(
            "--failures-per-day",
            type=click.FloatRange(min=0, max=1e4),
            help=f"With --survive: losses per day of each device and host [default: {DEFAULT_FAILURES_PER_DAY:g}].",
        ),
        click.option(
            "--survive",
            type=click.IntRange(0, 1),
            default=0,
            help="1: plan for the least expected time under losses of one device or host; refuse a plan after which "
            "the rest has too little memory.",
        ),
        click.option("--losses", is_flag=True, help="Also state what losing each device or host would cost."),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
