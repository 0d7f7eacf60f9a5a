"""Options for batch size, micro-batches, devices and target time: fixed, or chosen by the planner."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import MAX_MICROBATCHES
from penstock.units import parse_seconds

F = TypeVar("F", bound=Callable[..., Any])

AUTO = "auto"
DEFAULT_MICROBATCHES = 16
_RANGE = re.compile(r"\s*([0-9]{1,9})\s*(?:\.\.\s*([0-9]{1,9})\s*)?")


class _Microbatches(click.ParamType[int | str]):
    """A number of micro-batches, or `auto`."""

    name = "number or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The number, or `auto`."""
        if value == AUTO:
            return AUTO
        return click.IntRange(1, MAX_MICROBATCHES).convert(value, param, ctx)


@dataclass(frozen=True)
class Amounts:
    """Amounts in the options of `penstock plan`. None: the default applies."""

    num_microbatches: int | str | None = None
    global_batch_size: int | None = None
    devices: str | None = None
    under: str | None = None

    def __post_init__(self) -> None:
        if self.asks_for_microbatches and self.global_batch_size is None:
            raise InputError(
                "-m auto requires --global-batch-size",
                hint="Add, for example, --global-batch-size 512.",
            )
        if isinstance(self.num_microbatches, int) and self.global_batch_size is not None:
            raise InputError(
                "-m and --global-batch-size are mutually exclusive",
                hint="Leave one of them out, or use -m auto to choose the micro-batch size.",
            )

    @property
    def asks_for_microbatches(self) -> bool:
        """Whether to choose the micro-batch size."""
        return self.num_microbatches == AUTO

    @property
    def under_s(self) -> float | None:
        """The target of --under in seconds."""
        if self.under is None:
            return None
        seconds = parse_seconds(self.under, where="--under")
        if seconds <= 0:
            raise InputError("--under must be positive", where="--under", hint="Use, for example, --under 2s.")
        return seconds

    def microbatches_of(self, micro_batch_size: int) -> int:
        """The number of micro-batches of this size."""
        if self.global_batch_size is None:
            return self.num_microbatches if isinstance(self.num_microbatches, int) else DEFAULT_MICROBATCHES
        if self.global_batch_size % micro_batch_size:
            near = [
                count
                for count in (
                    self.global_batch_size // micro_batch_size * micro_batch_size,
                    (self.global_batch_size // micro_batch_size + 1) * micro_batch_size,
                )
                if count
            ]
            raise InputError(
                f"global batch size {self.global_batch_size:,} is not a multiple of "
                f"micro-batch size {micro_batch_size:,}",
                where="--global-batch-size",
                hint=f"Use {' or '.join(f'{count:,}' for count in near)}, another --micro-batch-size, or -m auto.",
            )
        if not 1 <= self.global_batch_size // micro_batch_size <= MAX_MICROBATCHES:
            raise InputError(f"more than {MAX_MICROBATCHES:,} micro-batches", where="--global-batch-size")
        return self.global_batch_size // micro_batch_size

    def num_devices(self, cluster: Cluster) -> range | None:
        """The numbers of devices to choose from; None: use all of the cluster."""
        most = cluster.num_devices
        if self.devices is None:
            return range(1, most + 1) if self.under is not None else None
        match = _RANGE.fullmatch(self.devices)
        if match is None:
            hint = "Use a number, such as 4, or a range, such as 1..16."
            raise InputError(f"{self.devices[:60]!r} is not a number of devices", where="--devices", hint=hint)
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if not 1 <= first <= last <= most:
            what = f"{self.devices.strip()} must be between 1 and {most}, the number of devices of the cluster"
            raise InputError(what, where="--devices", hint="Put the smaller number first." if first > last else "")
        return range(first, last + 1)


def amount_options(verb: F) -> F:
    """Add -m, --global-batch-size, --devices and --under; the command gets them as `amounts`."""

    @wraps(verb)
    def wrapped(
        num_microbatches: int | str | None,
        global_batch_size: int | None,
        devices: str | None,
        under: str | None,
        **options: Any,
    ) -> Any:
        return verb(amounts=Amounts(num_microbatches, global_batch_size, devices, under), **options)

    for option in (
        click.option("--under", help="Choose the fewest devices with an iteration time under this target, such as 2s."),
        click.option("--devices", help="Number of devices to use: 4, or 1..16 to choose the best number."),
        click.option(
            "--global-batch-size",
            type=click.IntRange(1),
            help="Rows per iteration, instead of the number of micro-batches.",
        ),
        click.option(
            "-m",
            "--num-microbatches",
            type=_Microbatches(),
            help=f"Micro-batches per iteration [default: {DEFAULT_MICROBATCHES}]; "
            "auto, with --global-batch-size, chooses the best number.",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
