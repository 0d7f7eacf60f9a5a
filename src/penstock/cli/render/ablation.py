"""Showing the ablation of the planner auto: `penstock compare --ablate`."""

from penstock.cli.console import Console
from penstock.planners.studies import EVERYTHING, Ablation, AblationRow, Gain
from penstock.units import show_bytes, show_percent, show_seconds


def show_ablation(console: Console, title: str, ablation: Ablation) -> None:
    """Show the table, and the gain of Bi-Partition."""
    console.table(
        title,
        ("auto with", "iteration", "longer", "over bound", "bubble", "peak memory", ""),
        [_cells(row) for row in ablation.rows],
        left=1,
    )
    console.show(
        "longer: than with the full search space; over bound: above the lower bound of the restricted search space; "
        "ordinary pipeline: no replication and one set of cuts",
        *([gain_sentence(ablation.bipartition)] if ablation.bipartition else []),
    )


def _cells(row: AblationRow) -> tuple[str, ...]:
    out = row.outcome
    longer = row.times_as_long
    return (
        row.name,
        show_seconds(out.iteration_s),
        "" if row.name == EVERYTHING or longer is None or not out.fits else show_percent(longer - 1),
        show_percent(out.iteration_s / row.bound_s - 1) if row.bound_s > 0 else "",
        show_percent(out.bubble_fraction),
        show_bytes(out.peak_bytes),
        "" if out.fits else "does not fit",
    )


def gain_sentence(gain: Gain) -> str:
    """The gain of two sets of cuts, as a sentence.

    >>> gain_sentence(Gain(one_set_s=2.0, two_sets_s=1.5))
    'Bi-Partition: without replication, separate cuts for forward and backward save 25.0 % (1.50 s instead of 2.00 s), \
including the messages that they add.'
    """
    if gain.two_sets_s >= gain.one_set_s:
        return "Bi-Partition: without replication, separate cuts for forward and backward save nothing here."
    return (
        f"Bi-Partition: without replication, separate cuts for forward and backward save {show_percent(gain.fraction)} "
        f"({show_seconds(gain.two_sets_s)} instead of {show_seconds(gain.one_set_s)}), including the "
        "messages that they add."
    )
