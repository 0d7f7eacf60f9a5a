"""Showing the micro-batch sizes or numbers of devices that were compared."""

from typing import Any

from penstock.cli.console import Console
from penstock.planners import Outcome
from penstock.planners.studies import DeviceChoice, DeviceCount, MicrobatchChoice, Size
from penstock.units import show_bytes, show_count, show_percent, show_seconds


def show_sizes(console: Console, choice: MicrobatchChoice) -> None:
    """Show the micro-batch sizes, and the best one."""
    best = choice.best
    console.table(
        f"{show_count(best.micro_batch_size * best.num_microbatches, 'row')} per iteration: number of micro-batches",
        ("", "times", "micro-batch size", "micro-batches", "iteration", "rows/s", "bubble", "peak memory", ""),
        [
            (
                "best" if size is best else "",
                size.basis.value,
                f"{size.micro_batch_size:,}",
                f"{size.num_microbatches:,}",
                *_figures(size.outcome, size.bound_s),
                _remark(size),
            )
            for size in choice.sizes
        ],
        left=2,
    )
    console.show("")
    for note in choice.notes:
        console.warn(note)


def sizes_data(choice: MicrobatchChoice) -> list[dict[str, Any]]:
    """The same as data."""
    return [
        {
            "micro_batch_size": size.micro_batch_size,
            "num_microbatches": size.num_microbatches,
            "times": size.basis.value,
            "bound_s": size.bound_s,
            "chosen": size is choice.best,
            "outcome": size.outcome,
        }
        for size in choice.sizes
    ]


def show_counts(console: Console, choice: DeviceChoice, under_s: float | None) -> None:
    """Show the numbers of devices, and the best one."""
    target = f" for an iteration under {show_seconds(under_s)}" if under_s is not None else ""
    console.table(
        f"number of devices{target}",
        ("", "devices", "iteration", "rows/s", "bubble", "peak memory", "speed-up", "efficiency", ""),
        [
            (
                "best" if count is choice.best else "",
                f"{count.num_devices:,}",
                *_figures(count.outcome, count.bound_s),
                f"{count.speed_up:.2f} x" if count.speed_up is not None else "",
                show_percent(count.efficiency) if count.efficiency is not None else "",
                _shortage(count.outcome),
            )
            for count in choice.counts
        ],
        left=1,
    )
    if any(count.outcome is None for count in choice.counts):
        console.show("over: a lower bound for all plans on this number of devices")
    console.show("")


def counts_data(choice: DeviceChoice) -> list[dict[str, Any]]:
    """The same as data."""
    return [_count_data(count, chosen=count is choice.best) for count in choice.counts]


def _count_data(count: DeviceCount, *, chosen: bool) -> dict[str, Any]:
    return {
        "num_devices": count.num_devices,
        "devices": count.devices,
        "bound_s": count.bound_s,
        "speed_up": count.speed_up,
        "efficiency": count.efficiency,
        "chosen": chosen,
        "outcome": count.outcome,
    }


def _figures(outcome: Outcome | None, bound_s: float) -> tuple[str, str, str, str]:
    """Iteration time, rows per second, bubble and peak memory; or the bound, if no plan was made."""
    if outcome is None:
        return f"over {show_seconds(bound_s)}", "", "", ""
    rate = f"{outcome.rows_per_s:,.1f}" if outcome.rows_per_s is not None else ""
    bubble, peak = show_percent(outcome.bubble_fraction), show_bytes(outcome.peak_bytes)
    return show_seconds(outcome.iteration_s), rate, bubble, peak


def _remark(size: Size) -> str:
    return _shortage(size.outcome) or ("less than a row per replica" if size.has_starved_replica else "")


def _shortage(outcome: Outcome | None) -> str:
    return "does not fit" if outcome is not None and not outcome.fits else ""
