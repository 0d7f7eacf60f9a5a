"""The data of a report's page: a JSON object with packed arrays in it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.errors import InputError
from penstock.planners.bounds import relative_gap
from penstock.program import Kind
from penstock.report.analysis import Baseline, validate_timeline
from penstock.report.analysis.prediction import compare_timelines, difference_sentences, row_name
from penstock.report.html.payload.catalog import Catalog
from penstock.report.html.payload.subject import subject_data
from penstock.report.html.payload.summary import SummaryText, summarise_subject
from penstock.report.subject import ReportSubject, prediction_pairs
from penstock.report.text import mixed_problems_warning

FORMAT = "penstock.report/3"

MAX_ACTIONS = 2_000_000
"""A page with this many actions has some 100 MB and takes seconds to open."""

SINGLE_NOTE = "one iteration, as in every timeline file"


class PageData(msgspec.Struct, frozen=True):
    """The content of the page, and the summary of each timeline, which the command line prints as well."""

    content: dict[str, Any]
    summaries: list[SummaryText]


def page_data(items: Sequence[ReportSubject], *, title: str, with_baselines: bool = True) -> PageData:
    """Collect the data of a report.

    Args:
        items: The subjects of the report, at least one.
        title: The title of the page.
        with_baselines: Whether to plan the same problems with the baseline planners, for comparison.

    Returns:
        The content of the page and the summaries.

    Raises:
        InputError: There are no subjects, a timeline is invalid, or there are too many actions for a page.
    """
    if not items:
        raise InputError("a report needs at least one plan or timeline")
    for item in items:
        validate_timeline(item.timeline)
    num_actions = sum(item.timeline.program.num_actions for item in items)
    if num_actions > MAX_ACTIONS:
        raise InputError(
            f"number of actions ({num_actions:,}) exceeds the limit of a report page ({MAX_ACTIONS:,})",
            hint="Use fewer micro-batches, or write a trace: penstock simulate --trace.",
        )
    catalog = Catalog(items, with_baselines=with_baselines)
    summaries = [summarise_subject(item, catalog.baselines(item)) for item in items]
    content = {
        "format": FORMAT,
        "title": title,
        "mixed": mixed_problems_warning(items),
        "kinds": [kind.name for kind in Kind],
        "subjects": [subject_data(item, summary, catalog) for item, summary in zip(items, summaries, strict=True)],
        "layers": catalog.layers.values,
        "clusters": catalog.clusters.values,
        "problems": [
            [_baseline_row(baseline, problem.bound_s) for baseline in problem.baselines]
            for problem in catalog.problems.values
        ],
        "pairs": [_pair(items, predicted, measured) for predicted, measured in prediction_pairs(items)],
    }
    return PageData(content, summaries)


def _baseline_row(baseline: Baseline, bound_s: float) -> dict[str, Any]:
    outcome = baseline.outcome
    return {
        "planner": baseline.planner,
        "schedule": baseline.schedule,
        "iteration": outcome.iteration_s,
        "rowsPerSecond": outcome.rows_per_s,
        "bubble": outcome.bubble_fraction,
        "peak": outcome.peak_bytes,
        "traffic": outcome.traffic_bytes,
        "fits": outcome.fits,
        "gap": relative_gap(outcome.iteration_s, bound_s),
    }


def _pair(items: Sequence[ReportSubject], predicted: int, measured: int) -> dict[str, Any]:
    comparison = compare_timelines(items[predicted].timeline, [items[measured].timeline])
    return {
        "predicted": predicted,
        "measured": measured,
        "sentences": difference_sentences(comparison, single_note=SINGLE_NOTE),
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
            for row in comparison.rows
        ],
    }
