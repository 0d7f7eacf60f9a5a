"""Showing what was tried before something was chosen: sizes of micro-batches, numbers of devices."""

from typing import Any

from penstock.cli.console import Screen
from penstock.planners import Outcome
from penstock.planners.studies import DeviceChoice, DeviceCount, MicrobatchChoice, Size
from penstock.units import counted, show_bytes, show_percent, show_seconds


def show_sizes(screen: Screen, choice: MicrobatchChoice) -> None:
    """The sizes that were tried, and the one that was taken."""
    best = choice.best
    screen.table(
        f"{counted(best.micro_batch_size * best.num_microbatches, 'row')}: how many micro-batches?",
        ("", "times", "rows", "micro-batches", "iteration", "rows/s", "bubble", "peak memory", ""),
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
    screen.show("")
    for note in choice.notes:
        screen.warn(note)


def sizes_data(choice: MicrobatchChoice) -> list[dict[str, Any]]:
    """The same for machines."""
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


def show_counts(screen: Screen, choice: DeviceChoice, under_s: float | None) -> None:
    """The numbers of devices that were tried, and the one that was taken."""
    target = f" for an iteration under {show_seconds(under_s)}" if under_s is not None else ""
    screen.table(
        f"how many devices{target}?",
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
        screen.show("over: no plan on so few devices can be faster (a proven bound)")
    screen.show("")


def counts_data(choice: DeviceChoice) -> list[dict[str, Any]]:
    """The same for machines."""
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
    """Iteration, rows a second, bubble, peak memory; or the bound, where that was enough."""
    if outcome is None:
        return f"over {show_seconds(bound_s)}", "", "", ""
    rate = f"{outcome.rows_per_s:,.1f}" if outcome.rows_per_s is not None else ""
    bubble, peak = show_percent(outcome.bubble_fraction), show_bytes(outcome.peak_bytes)
    return show_seconds(outcome.iteration_s), rate, bubble, peak


def _remark(size: Size) -> str:
    return _shortage(size.outcome) or ("less than a row each" if size.starves else "")


def _shortage(outcome: Outcome | None) -> str:
    return "does not fit" if outcome is not None and not outcome.fits else ""
