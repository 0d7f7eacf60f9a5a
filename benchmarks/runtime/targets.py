"""The targets of the part `speed`."""

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.results import Result
from benchmarks.runtime.measurements import SINGLE_PROCESS, SINGLE_PROCESS_WHOLE_BATCH, Row, SpeedRun, spread
from benchmarks.runtime.plans import AUTO, EQUAL_1F1B, ONE_SET, TWO_SETS

OF_LIMIT = {8: 0.94, 16: 0.92}
OVER_1F1B = 1.10
SAME_LOSS = 1e-5
CLOSE = 0.05
EXPLAINED = 0.10
TORCH_1F1B = "torch: 1f1b, equal layers"
NEVER_SLOWER, HEAVY_GAIN = 0.995, 1.10
HEAVY = ("heavy3", "heavy5")
INSIDE = 0.9
QUIET = 0.05
"""The largest difference between turns of a single process on a quiet machine."""


def check_targets(runs: Sequence[SpeedRun]) -> Iterator[Result]:
    """All targets."""
    yield from _same_numbers(runs)
    for run in runs:
        if run.workload == "gpt" and run.num_microbatches in OF_LIMIT:
            yield _of_limit(run)
        if run.num_microbatches == 8:
            yield _over_torch(run)
        if run.workload == "gpt" and run.num_microbatches == 8:
            gain = run.gain(AUTO, TORCH_1F1B)
            yield _timed(
                f"{_where(run)}: over torch's 1F1B with equal layers",
                f">= {OVER_1F1B} x",
                str(gain),
                gain.middle >= OVER_1F1B,
            )
    yield from _variants(runs)
    yield from _two_sets(runs)
    yield from _predictions(runs)
    yield from _intervals(runs)


def _where(run: SpeedRun) -> str:
    return f"{run.title}, M = {run.num_microbatches}"


def _timed(what: str, target: str, measured: str, reached: bool) -> Result:
    # A few rounds of small models do not decide a target.
    return Result(what, target, measured, reached, is_over_all=True)


def _same_numbers(runs: Sequence[SpeedRun]) -> Iterator[Result]:
    for side in ("ours", "torch"):
        worst, worst_name = 0.0, "all"
        for run in runs:
            known = run.row(SINGLE_PROCESS).losses
            for row in run.rows:
                if not row.name.startswith(side):
                    continue
                apart = max(abs(a - b) / abs(a) for a, b in zip(known, row.losses, strict=True))
                if not apart <= worst:
                    worst, worst_name = apart, f"{row.name}, {_where(run)}"
        yield Result(
            f"losses of the first iterations as in one process: {side}",
            f"<= {SAME_LOSS:g}",
            f"{worst:.1e} ({worst_name})",
            worst <= SAME_LOSS,
        )


def _of_limit(run: SpeedRun) -> Result:
    fraction, least = run.of_limit(AUTO), OF_LIMIT[run.num_microbatches]
    limit = statistics.median(run.limit)
    return _timed(
        f"{_where(run)}: speed-up as part of the limit",
        f">= {least}",
        f"{fraction} of {limit:.3f}",
        fraction.middle >= least,
    )


def _over_torch(run: SpeedRun) -> Result:
    best = run.best(run.torchs)
    gain = spread(run.over_baseline) if run.over_baseline else run.gain(AUTO, best)
    return _timed(f"{_where(run)}: over torch's best", "> 1 x", f"{gain} ({best[7:]})", gain.middle > 1)


def _variants(runs: Sequence[SpeedRun]) -> Iterator[Result]:
    """Auto is never slower than the best of its restricted variants, and gains where one set of cuts cannot balance."""
    for run in runs:
        if run.over_variants:
            gain = spread(run.over_variants)
            least = HEAVY_GAIN if run.workload in HEAVY else NEVER_SLOWER
            what = f"{_where(run)}: auto over its best restricted variant"
            yield _timed(what, f">= {least} x", str(gain), gain.middle >= least)


def _two_sets(runs: Sequence[SpeedRun]) -> Iterator[Result]:
    """Two sets of cuts, where `auto` chooses them, must not be slower than one. Shows the predicted gain, too."""
    for run in runs:
        if run.row(AUTO).has_remote_backward and run.has(ONE_SET):
            gain = spread(run.two_sets) if run.two_sets else run.gain(AUTO, ONE_SET)
            expected = _predicted_gain(run, AUTO)
            yield _timed(
                f"{_where(run)}: two sets of cuts over one, chosen by auto",
                ">= 1 x",
                f"{gain}, predicted {expected:.3f}",
                gain.middle >= 1,
            )


def _predicted_gain(run: SpeedRun, name: str) -> float:
    one, two = run.row(ONE_SET).predicted_s, run.row(name).predicted_s
    return one / two if one and two else float("nan")


def _predictions(runs: Sequence[SpeedRun]) -> Iterator[Result]:
    errors = {(run.title, run.num_microbatches, row.name): error_of(row) for run in runs for row in predicted(run)}
    if not errors:
        return
    middle = statistics.median(map(abs, errors.values()))
    far = sum(abs(error) > EXPLAINED for error in errors.values())
    what = f"predicted against measured iterations, median of {len(errors)} ({far} above {EXPLAINED:.0%})"
    yield _timed(what, f"<= {CLOSE:.0%}", f"{middle:.1%}", middle <= CLOSE)


def _intervals(runs: Sequence[SpeedRun]) -> Iterator[Result]:
    """The share of measured plans whose median iteration is inside the predicted interval."""
    inside = [
        row.interval_s[0] <= row.median_s <= row.interval_s[1]
        for run in runs
        for row in predicted(run)
        if row.interval_s is not None
    ]
    if inside:
        share = sum(inside) / len(inside)
        what = "measured plans inside their predicted interval"
        yield _timed(what, f">= {INSIDE:.0%}", f"{share:.0%} of {len(inside)}", share >= INSIDE)


def predicted(run: SpeedRun) -> list[Row]:
    """The rows with a prediction, once per plan."""
    return [row for row in run.rows if row.predicted_s is not None and not row.detail.startswith("as ")]


def error_of(row: Row) -> float:
    """The prediction's error, relative to the measured time."""
    assert row.predicted_s is not None, "the row has no prediction"
    return 1 - row.predicted_s / row.median_s


def notes_on(runs: Sequence[SpeedRun]) -> Iterator[str]:
    """Remarks beside the targets."""
    for run in runs:
        where = _where(run)
        turns_s = run.row(SINGLE_PROCESS).round_s
        if max(turns_s) > (1 + QUIET) * min(turns_s):
            spread_text = f"the same iterations of one process took {min(turns_s):.2f} to {max(turns_s):.2f} s"
            yield f"{where}: the machine was not quiet ({spread_text}), so its times do not decide anything"
        if run.has(SINGLE_PROCESS_WHOLE_BATCH):
            whole, over = (
                run.gain(SINGLE_PROCESS_WHOLE_BATCH, SINGLE_PROCESS),
                run.gain(AUTO, SINGLE_PROCESS_WHOLE_BATCH),
            )
            yield f"{where}: one process on the whole batch is {whole} x as fast as micro-batched; ours over it {over}"
        if run.has(TORCH_1F1B):
            gain = run.gain(EQUAL_1F1B, TORCH_1F1B)
            yield f"{where}: the same plan, 1F1B with equal layers, ours over torch's {gain}"
        if not run.row(AUTO).has_remote_backward:
            forced = "; bipartition finds none either"
            if run.has(TWO_SETS):
                gain = run.gain(TWO_SETS, ONE_SET)
                forced = f"; forced: {gain} x one set, predicted {_predicted_gain(run, TWO_SETS):.3f}"
            yield f"{where}: auto does not choose two sets of cuts{forced}"
        yield from (f"{where}: {note}" for note in run.notes)
