"""Everything that a report's page shows, as JSON with arrays in it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.errors import InputError
from penstock.program import Kind
from penstock.report.analysis import Baseline, check_showable
from penstock.report.analysis.prediction import compare_timelines, difference_sentences, row_name
from penstock.report.html.payload.shared import Shared
from penstock.report.html.payload.subject import subject_data
from penstock.report.html.payload.summary import Words, words_about
from penstock.report.subject import Shown, pairs
from penstock.report.text import mixed_words

FORMAT = "penstock.report/2"

MOST_ACTIONS = 2_000_000
"""A page of so many has some 100 MB, and takes seconds to open."""

OF_ONE = "one iteration; a timeline file holds no more"


class PageData(msgspec.Struct, frozen=True):
    """What the page shows, and the words about each timeline, which are shown elsewhere too."""

    content: dict[str, Any]
    words: list[Words]


def page_data(items: Sequence[Shown], *, title: str, with_baselines: bool = True) -> PageData:
    """Put together what is known of some timelines."""
    if not items:
        raise InputError("a report needs at least one plan or timeline")
    for item in items:
        check_showable(item.timeline)
    num_actions = sum(item.timeline.program.num_actions for item in items)
    if num_actions > MOST_ACTIONS:
        raise InputError(
            f"{num_actions:,} actions are more than the {MOST_ACTIONS:,} that a page can show",
            hint="Show a plan with fewer micro-batches, or use a trace: penstock simulate --trace.",
        )
    shared = Shared(items, with_baselines=with_baselines)
    words = [words_about(item, shared.baselines(item)) for item in items]
    content = {
        "format": FORMAT,
        "title": title,
        "mixed": mixed_words(items),
        "kinds": [kind.name for kind in Kind],
        "subjects": [subject_data(item, told, shared) for item, told in zip(items, words, strict=True)],
        "units": shared.units.values,
        "clusters": shared.clusters.values,
        "problems": [[_baseline_row(other) for other in others] for others in shared.problems.values],
        "pairs": [_pair(items, predicted, measured) for predicted, measured in pairs(items)],
    }
    return PageData(content, words)


def _baseline_row(baseline: Baseline) -> dict[str, Any]:
    out = baseline.outcome
    return {
        "planner": baseline.planner,
        "schedule": baseline.schedule,
        "iteration": out.iteration_s,
        "rowsPerSecond": out.rows_per_s,
        "bubble": out.bubble_fraction,
        "peak": out.peak_bytes,
        "traffic": out.traffic_bytes,
        "fits": out.fits,
    }


def _pair(items: Sequence[Shown], predicted: int, measured: int) -> dict[str, Any]:
    found = compare_timelines(items[predicted].timeline, [items[measured].timeline])
    return {
        "predicted": predicted,
        "measured": measured,
        "words": difference_sentences(found, of_one=OF_ONE),
        "rows": [
            {
                "name": row_name(row),
                "devices": list(row.devices),
                "num": row.num,
                "predicted": row.predicted_s,
                "measured": row.measured_s,
                "atMost": not row.is_compute,
                "ratio": row.ratio,
            }
            for row in found.rows
        ],
    }
