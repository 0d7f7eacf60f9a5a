"""The tables of the README."""

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.runtime.measurements import SINGLE_PROCESS, SpeedRun, spread
from benchmarks.runtime.overhead import OverheadRun
from benchmarks.runtime.targets import EXPLAINED, error_of, predicted


def speed_tables(runs: Sequence[SpeedRun]) -> Iterator[str]:
    """One table per run: every contender, the fastest first."""
    for run in runs:
        lines = [
            f"### {run.title}, M = {run.num_microbatches}",
            "",
            f"{len(run.limit)} rounds; limit {spread(run.limit)}.",
            "",
            "| contender | iteration | speed-up | of the limit | what |",
            "| --- | ---: | ---: | ---: | --- |",
        ]
        for row in sorted(run.rows, key=lambda item: item.median_s):
            speed, part = run.gain(row.name, SINGLE_PROCESS), run.of_limit(row.name)
            lines.append(f"| {row.name} | {row.median_s * 1e3:.0f} ms | {speed} | {part.middle:.3f} | {row.detail} |")
        yield "\n".join(lines)


def prediction_table(runs: Sequence[SpeedRun]) -> str:
    """Predicted against measured times by plan, with details of large errors."""
    lines = [
        "### Predicted and measured",
        "",
        "| model | M | plan | predicted | measured | error |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    far = []
    for run in runs:
        for row in predicted(run):
            assert row.predicted_s is not None
            error = error_of(row)
            lines.append(
                f"| {run.title} | {run.num_microbatches} | {row.name} | {row.predicted_s * 1e3:.0f} ms "
                f"| {row.median_s * 1e3:.0f} ms | {error:+.1%} |"
            )
            if abs(error) > EXPLAINED:
                far.append(f"- {run.title}, M = {run.num_microbatches}, {row.name} ({error:+.1%}): {row.explained}")
    middle = statistics.median([abs(error_of(row)) for run in runs for row in predicted(run)])
    lines += ["", f"Median error {middle:.1%}; {len(far)} above {EXPLAINED:.0%}."]
    if far:
        lines += ["In seconds of both ranks together:", "", *far]
    return "\n".join(lines)


def overhead_table(runs: Sequence[OverheadRun]) -> str:
    """Every model and schedule."""
    lines = [
        "| model | schedule | actions | jobs | torch baseline | Penstock: more | per action | per job | more in gloo |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run in runs:
        more = statistics.median(run.beyond_s)
        lines.append(
            f"| {run.title} | {run.schedule} | {run.num_actions} | {run.num_jobs} "
            f"| {run.torch_baseline_s * 1e3:.1f} ms | {more * 1e3:.1f} ms | {more / run.num_actions * 1e6:.0f} us "
            f"| {more / run.num_jobs * 1e6:.0f} us | {run.transport_beyond_s * 1e3:.1f} ms |"
        )
    return "\n".join(lines)
