"""Showing a training run: losses, predicted and measured times, and the comparison with a single process."""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.cli.console import Console
from penstock.launch import TrainResult, loss_difference
from penstock.launch.runs import Stepped
from penstock.profile import Profile
from penstock.report.analysis import reordered_sums
from penstock.report.analysis.prediction import compare_timelines, difference_sentences, median_iteration, row_name
from penstock.report.text import inside_sentence
from penstock.simulate import Evaluation, predict
from penstock.timeline import Timeline
from penstock.units import show_bytes, show_count, show_seconds

MAX_LOSSES = 10
OFFER_CALIBRATION = 0.05
"""Relative difference of predicted and measured iterations above which calibration is offered."""
MAX_PICTURED = 8
"""Maximum number of devices for which the predicted and the measured timeline are drawn."""


def show_training(
    console: Console,
    result: TrainResult,
    predicted: Evaluation,
    single: TrainResult | None,
    profile: Profile | None = None,
) -> None:
    """Show the results as text and tables."""
    if result.steps:
        first, last = result.steps[0], result.steps[-1]
        rate = result.rows_per_s
        console.show(
            f"trained {show_count(len(result.steps), 'step')}: loss {first.loss:.5g} to {last.loss:.5g}"
            + (f"; median {rate:,.1f} rows/s" if rate else "")
        )
    for note in result.notes:
        console.show(f"  {note}")
    if result.timelines:
        show_prediction(console, result.timelines, predicted, profile)
    if result.memory:
        _show_memory(console, result, predicted)
    if single is not None and result.steps and single.steps:
        _show_beside(console, result, predicted, single)


def show_prediction(
    console: Console, measured: Sequence[Timeline], predicted: Evaluation, profile: Profile | None = None
) -> None:
    """Show predicted and measured times: pictures, a table, and what differs most."""
    from penstock.report.terminal import TimelinePicture

    if len(predicted.costs.plan.devices) <= MAX_PICTURED:
        heading = f"The median of {len(measured)} measured iterations:"
        shown = [heading] if len(measured) > 1 else []
        console.show("", TimelinePicture(predicted.timeline), "", *shown, TimelinePicture(median_iteration(measured)))
    comparison = compare_timelines(predicted.timeline, measured)
    console.show("")
    rows = []
    for row in comparison.rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        rows.append(
            (
                row_name(row),
                ", ".join(row.devices),
                f"{row.num:,}",
                show_seconds(row.predicted_s),
                row.measured_text,
                ratio,
            )
        )
    heading = "warming up" if comparison.is_warm_up else "measured" if len(measured) == 1 else "median"
    columns = ("action", "on", "number", "predicted", heading, "ratio")
    console.table("", columns, rows, left=2)
    console.show("", *difference_sentences(comparison))
    measured_s = median_iteration(measured).iteration_s
    if profile is not None:
        console.show(inside_sentence(predict(predicted.proof, profile).interval, measured_s))
    if abs(predicted.timeline.iteration_s / measured_s - 1) > OFFER_CALIBRATION:
        console.show(f"To predict what was measured: penstock calibrate PLAN={show_seconds(measured_s)} -o PROFILE")


def _show_memory(console: Console, result: TrainResult, predicted: Evaluation) -> None:
    """Show the predicted and the measured memory of every accelerator."""
    rows = [
        (
            row["device"],
            show_bytes(row["predicted_bytes"]),
            show_bytes(row["peak_bytes"]),
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
            show_bytes(row["reserved_bytes"]),
            show_bytes(row["outside_bytes"]),
            show_bytes(row["total_bytes"]),
        )
        for row in _memory_rows(result, predicted)
    ]
    columns = ("memory", "predicted", "measured", "ratio", "allocator", "driver, communicators", "device")
    console.show("")
    console.table("", columns, rows, left=1)


def _memory_rows(result: TrainResult, predicted: Evaluation) -> list[dict[str, Any]]:
    """Predicted and measured peaks of each accelerator, as data."""
    peaks = dict(zip(predicted.program.devices, predicted.proof.peak_bytes.tolist(), strict=True))
    return [
        {
            "device": device,
            "predicted_bytes": peaks[device],
            **msgspec.structs.asdict(used),
            "ratio": used.peak_bytes / peaks[device] if peaks[device] else None,
        }
        for device, used in result.memory.items()
    ]


def _show_beside(console: Console, result: TrainResult, predicted: Evaluation, single: TrainResult) -> None:
    pairs = list(zip(single.steps, result.steps, strict=False))
    shown = pairs if console.verbose else _some(pairs)
    rows = [
        (
            str(one.step),
            repr(one.loss),
            repr(other.loss),
            "equal" if not loss_difference(one, other) else _off(one, other),
        )
        for one, other in shown
    ]
    console.show("")
    console.table("", ("step", "loss in a single process", "loss with the plan", "difference"), rows, left=0)
    num_equal = sum(not loss_difference(one, other) for one, other in pairs)
    if num_equal == len(pairs):
        console.show(f"all {len(pairs)} losses are bitwise equal")
    else:
        worst = max(pairs, key=lambda pair: loss_difference(*pair))
        console.show(
            f"{num_equal} of {len(pairs)} losses are bitwise equal; the largest relative difference is {_off(*worst)} "
            f"at step {worst[0].step}"
        )
        reasons = reordered_sums(predicted.costs, predicted.program)
        if reasons:
            console.show(
                "  last bits may differ, because sums run in a different order:", *(f"    {text}" for text in reasons)
            )
    if result.step_s and single.step_s:
        speed_up, num_ranks = single.step_s / result.step_s, len(predicted.costs.plan.devices)
        console.show(
            f"a step takes {show_seconds(single.step_s)}{_spread(single)} in a single process and "
            f"{show_seconds(result.step_s)}{_spread(result)} with the plan: {speed_up:.2f} x speed-up"
        )
        if speed_up > num_ranks:
            console.warn(too_fast(speed_up, num_ranks))


def too_fast(speed_up: float, num_ranks: int) -> str:
    """The warning for a speed-up above the number of ranks. The two runs are sequential."""
    return (
        f"a speed-up of {speed_up:.2f} x with {num_ranks} ranks is not plausible: the machine was probably busier "
        "during one of the two runs. Run nothing else at the same time, and repeat"
    )


def _spread(result: TrainResult) -> str:
    if result.step_quartiles_s is None:
        return ""
    low, high = result.step_quartiles_s
    return f" (quartiles {show_seconds(low)} and {show_seconds(high)})"


def _some(pairs: Sequence[tuple[Stepped, Stepped]]) -> list[tuple[Stepped, Stepped]]:
    """A few of them, evenly spread, with the first and the last."""
    if len(pairs) <= MAX_LOSSES:
        return list(pairs)
    indices = {round(number * (len(pairs) - 1) / (MAX_LOSSES - 1)) for number in range(MAX_LOSSES)}
    return [pairs[index] for index in sorted(indices)]


def _off(one: Stepped, other: Stepped) -> str:
    return f"{loss_difference(one, other):.1e}"


def training_data(
    result: TrainResult, predicted: Evaluation, single: TrainResult | None, profile: Profile | None = None
) -> dict[str, Any]:
    """The results as data."""
    data: dict[str, Any] = {
        "steps": result.steps,
        "step_s": result.step_s,
        "step_quartiles_s": result.step_quartiles_s,
        "rows_per_s": result.rows_per_s,
        "was_stopped": result.was_stopped,
        "error": str(result.failure) if result.failure else None,
        "notes": result.notes,
        "memory": _memory_rows(result, predicted),
        "interval": None if profile is None else predict(predicted.proof, profile).interval,
        "comparison": prediction_data(predicted, result.timelines) if result.timelines else None,
    }
    if single is not None:
        is_equal = [not loss_difference(one, other) for one, other in zip(single.steps, result.steps, strict=False)]
        data["single_process"] = {
            "steps": single.steps,
            "step_s": single.step_s,
            "step_quartiles_s": single.step_quartiles_s,
            "rows_per_s": single.rows_per_s,
            "losses_equal": all(is_equal) and len(single.steps) == len(result.steps),
            "speed_up": single.step_s / result.step_s if single.step_s and result.step_s else None,
        }
    return data


def prediction_data(predicted: Evaluation, measured: Sequence[Timeline]) -> dict[str, Any]:
    """Predicted and measured times as data."""
    comparison = compare_timelines(predicted.timeline, measured)
    rows = [{**row._asdict(), "kind": row.kind.name, "ratio": row.ratio} for row in comparison.rows]
    devices = [{**item._asdict(), "ratio": item.ratio} for item in comparison.devices]
    links = [item._asdict() for item in comparison.links]
    return {
        **comparison._asdict(),
        "rows": rows,
        "devices": devices,
        "links": links,
        "ratio": comparison.ratio,
        "common_ratio": comparison.common_ratio,
        "words": difference_sentences(comparison),
    }
