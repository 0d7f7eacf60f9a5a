"""Showing what came of a training: losses, predicted against measured, and one process beside it."""

from collections.abc import Sequence
from typing import Any

from penstock.cli.console import Screen
from penstock.launch import Stepped, Trained, loss_difference
from penstock.report.analysis import changed_sums
from penstock.report.analysis.prediction import compare_timelines, difference_sentences, row_name, typical
from penstock.simulate import Evaluation
from penstock.timeline import Timeline
from penstock.units import counted, show_seconds

MOST_LOSSES = 10
MOST_PICTURED = 8
"""Devices that are drawn twice, as predicted and as measured."""


def show_trained(screen: Screen, trained: Trained, predicted: Evaluation, alone: Trained | None) -> None:
    """For people."""
    if trained.steps:
        first, last = trained.steps[0], trained.steps[-1]
        rate = trained.rows_per_s
        screen.show(
            f"trained {counted(len(trained.steps), 'step')}: loss {first.loss:.5g} at first, {last.loss:.5g} at last"
            + (f"; {rate:,.1f} rows/s in the median" if rate else "")
        )
    for note in trained.notes:
        screen.show(f"  {note}")
    if trained.timelines:
        show_prediction(screen, trained.timelines, predicted)
    if alone is not None and trained.steps and alone.steps:
        _show_beside(screen, trained, predicted, alone)


def show_prediction(screen: Screen, measured: Sequence[Timeline], predicted: Evaluation) -> None:
    """Predicted against measured: pictures, a table, and what differs most."""
    from penstock.report.terminal import TimelinePicture

    if len(predicted.costs.plan.devices) <= MOST_PICTURED:
        middle = f"Of the {len(measured)} iterations that were measured, the one in the middle:"
        shown = [middle] if len(measured) > 1 else []
        screen.show("", TimelinePicture(predicted.timeline), "", *shown, TimelinePicture(typical(measured)))
    found = compare_timelines(predicted.timeline, measured)
    screen.show("")
    rows = []
    for row in found.rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        rows.append(
            (
                row_name(row),
                ", ".join(row.devices),
                f"{row.num:,}",
                show_seconds(row.predicted_s),
                row.measured_in_words,
                ratio,
            )
        )
    # What a median is of is said in words below.
    heading = "warming up" if found.is_warm_up else "measured" if len(measured) == 1 else "median"
    columns = ("predicted against measured", "on", "times", "predicted", heading, "ratio")
    screen.table("", columns, rows, left=2)
    screen.show("", *difference_sentences(found))


def _show_beside(screen: Screen, trained: Trained, predicted: Evaluation, alone: Trained) -> None:
    pairs = list(zip(alone.steps, trained.steps, strict=False))
    shown = pairs if screen.verbose else _some(pairs)
    rows = [
        (
            str(one.step),
            repr(one.loss),
            repr(other.loss),
            "equal" if not loss_difference(one, other) else _off(one, other),
        )
        for one, other in shown
    ]
    screen.show("")
    screen.table("", ("step", "loss in one process", "loss by the plan", "difference"), rows, left=0)
    num_equal = sum(not loss_difference(one, other) for one, other in pairs)
    if num_equal == len(pairs):
        screen.show(f"all {len(pairs)} losses are equal, to the last bit")
    else:
        worst = max(pairs, key=lambda pair: loss_difference(*pair))
        screen.show(
            f"{num_equal} of {len(pairs)} losses are equal to the last bit; the largest difference is {_off(*worst)} "
            f"of the loss, at step {worst[0].step}"
        )
        reasons = changed_sums(predicted.costs, predicted.program)
        if reasons:
            screen.show("  last bits may differ, as sums are in another order:", *(f"    {text}" for text in reasons))
    if trained.step_s and alone.step_s:
        speed_up, num_ranks = alone.step_s / trained.step_s, len(predicted.costs.plan.devices)
        screen.show(
            f"a step takes {show_seconds(alone.step_s)}{_spread(alone)} in one process and "
            f"{show_seconds(trained.step_s)}{_spread(trained)} by the plan: {speed_up:.2f} x as fast"
        )
        if speed_up > num_ranks:
            screen.warn(too_fast(speed_up, num_ranks))


def too_fast(speed_up: float, num_ranks: int) -> str:
    """What a speed-up means that so many ranks cannot give. The two trainings run one after the other."""
    return (
        f"{num_ranks} ranks should not be {speed_up:.2f} x as fast as one process: the machine was probably busier "
        "during one of the two trainings, so do not trust this speed-up; let nothing else run beside"
    )


def _spread(trained: Trained) -> str:
    if trained.step_quartiles_s is None:
        return ""
    low, high = trained.step_quartiles_s
    return f" (half of them {show_seconds(low)} to {show_seconds(high)})"


def _some(pairs: Sequence[tuple[Stepped, Stepped]]) -> list[tuple[Stepped, Stepped]]:
    """A few, evenly spread, with the first and the last."""
    if len(pairs) <= MOST_LOSSES:
        return list(pairs)
    places = {round(number * (len(pairs) - 1) / (MOST_LOSSES - 1)) for number in range(MOST_LOSSES)}
    return [pairs[place] for place in sorted(places)]


def _off(one: Stepped, other: Stepped) -> str:
    return f"{loss_difference(one, other):.1e}"


def trained_data(trained: Trained, predicted: Evaluation, alone: Trained | None) -> dict[str, Any]:
    """For machines."""
    data: dict[str, Any] = {
        "steps": trained.steps,
        "step_s": trained.step_s,
        "step_quartiles_s": trained.step_quartiles_s,
        "rows_per_s": trained.rows_per_s,
        "was_stopped": trained.was_stopped,
        "error": str(trained.failure) if trained.failure else None,
        "notes": trained.notes,
        "comparison": prediction_data(predicted, trained.timelines) if trained.timelines else None,
    }
    if alone is not None:
        is_equal = [not loss_difference(one, other) for one, other in zip(alone.steps, trained.steps, strict=False)]
        data["alone"] = {
            "steps": alone.steps,
            "step_s": alone.step_s,
            "step_quartiles_s": alone.step_quartiles_s,
            "rows_per_s": alone.rows_per_s,
            "losses_equal": all(is_equal) and len(alone.steps) == len(trained.steps),
            "speed_up": alone.step_s / trained.step_s if alone.step_s and trained.step_s else None,
        }
    return data


def prediction_data(predicted: Evaluation, measured: Sequence[Timeline]) -> dict[str, Any]:
    """Predicted against measured."""
    found = compare_timelines(predicted.timeline, measured)
    rows = [{**row._asdict(), "kind": row.kind.name, "ratio": row.ratio} for row in found.rows]
    devices = [{**item._asdict(), "ratio": item.ratio} for item in found.devices]
    links = [item._asdict() for item in found.links]
    return {
        **found._asdict(),
        "rows": rows,
        "devices": devices,
        "links": links,
        "ratio": found.ratio,
        "words": difference_sentences(found),
    }
