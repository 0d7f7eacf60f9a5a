"""penstock compare --ablate: what every freedom of the planner auto is worth."""

from dataclasses import replace

from penstock.cli.console import Screen
from penstock.cli.options import AutoOptions
from penstock.cli.render.search_progress import search
from penstock.plan import Plan
from penstock.planners import Problem
from penstock.planners.studies import EVERYTHING, SETTINGS, Ablation, AblationRow, Gain, Setting, ablate
from penstock.units import show_bytes, show_percent, show_seconds


def run_ablation(screen: Screen, problem: Problem, asked: AutoOptions) -> Ablation:
    """Search with every setting, showing how far it is."""

    def find(setting: Setting) -> Plan:
        number = SETTINGS.index(setting) + 1
        what = f"{setting.name} ({number} of {len(SETTINGS)})"
        return search(screen, problem, replace(asked, search_space=setting.search_space), what=what)

    return ablate(problem, find)


def show_ablation(screen: Screen, title: str, found: Ablation) -> None:
    """The table, and what Bi-Partition gains."""
    screen.table(
        title,
        ("auto with", "iteration", "longer", "over bound", "bubble", "peak memory", ""),
        [_cells(row) for row in found.rows],
        left=1,
    )
    screen.show(
        "longer: than with everything; over bound: above what no plan without that freedom can be under; "
        "ordinary pipeline: no replication and one set of cuts",
        *([gain_sentence(found.bipartition)] if found.bipartition else []),
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
    """What two sets of cuts bring, in words.

    >>> gain_sentence(Gain(one_set_s=2.0, two_sets_s=1.5))
    'Bi-Partition: without replication, cutting forward and backward apart saves 25.0 % (1.50 s instead of 2.00 s), \
what is sent for it included.'
    """
    if gain.two_sets_s >= gain.one_set_s:
        return "Bi-Partition: without replication, cutting forward and backward apart was not found to save anything."
    return (
        f"Bi-Partition: without replication, cutting forward and backward apart saves {show_percent(gain.fraction)} "
        f"({show_seconds(gain.two_sets_s)} instead of {show_seconds(gain.one_set_s)}), what is sent for it included."
    )
