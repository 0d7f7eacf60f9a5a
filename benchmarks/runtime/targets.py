"""The targets that runs of speed decide."""

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.results import Result
from benchmarks.runtime.measurements import ALONE, WHOLE, Row, SpeedRun, spread
from benchmarks.runtime.plans import AUTO, EQUAL_1F1B, ONE_SET, TWO_SETS

OF_LIMIT = {8: 0.88, 16: 0.92}
OVER_1F1B = 1.10
SAME_LOSS = 1e-5
CLOSE = 0.05
EXPLAINED = 0.10
TORCH_1F1B = "torch: 1f1b, equal layers"
QUIET = 0.05
"""Turns of one process on a quiet machine differ by no more."""


def against_targets(runs: Sequence[SpeedRun]) -> Iterator[Result]:
    """What is decided by timing."""
    yield from _same_numbers(runs)
    for run in runs:
        if run.subject == "gpt" and run.num_microbatches in OF_LIMIT:
            yield _of_limit(run)
        if run.num_microbatches == 8:
            yield _over_torch(run)
        if run.subject == "gpt" and run.num_microbatches == 8:
            gain = run.gain(AUTO, TORCH_1F1B)
            yield _timed(
                f"{_where(run)}: over torch's 1F1B with equal layers",
                f">= {OVER_1F1B} x",
                str(gain),
                gain.middle >= OVER_1F1B,
            )
    yield from _two_sets(runs)
    yield from _predictions(runs)


def _where(run: SpeedRun) -> str:
    return f"{run.title}, M = {run.num_microbatches}"


def _timed(what: str, target: str, measured: str, reached: bool) -> Result:
    # Times of small models, in few rounds, decide nothing.
    return Result(what, target, measured, reached, is_over_all=True)


def _same_numbers(runs: Sequence[SpeedRun]) -> Iterator[Result]:
    for side in ("ours", "torch"):
        worst, worst_name = 0.0, "all"
        for run in runs:
            known = run.row(ALONE).losses
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
    found, least = run.of_limit(AUTO), OF_LIMIT[run.num_microbatches]
    limit = statistics.median(run.limit)
    return _timed(
        f"{_where(run)}: speed-up as part of the limit",
        f">= {least}",
        f"{found} of {limit:.3f}",
        found.middle >= least,
    )


def _over_torch(run: SpeedRun) -> Result:
    best = run.best(run.torchs)
    gain = spread(run.over_rival) if run.over_rival else run.gain(AUTO, best)
    return _timed(f"{_where(run)}: over torch's best", "> 1 x", f"{gain} ({best[7:]})", gain.middle > 1)


def _two_sets(runs: Sequence[SpeedRun]) -> Iterator[Result]:
    """Where the planner chooses two sets of cuts, they must not lose; beside it what they were predicted to gain."""
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


def predicted(run: SpeedRun) -> list[Row]:
    """Rows with a prediction, each plan once."""
    return [row for row in run.rows if row.predicted_s is not None and not row.detail.startswith("as ")]


def error_of(row: Row) -> float:
    """How much longer the iteration takes than predicted, as a part of what it takes."""
    assert row.predicted_s is not None, "only rows with a prediction are asked"
    return 1 - row.predicted_s / row.median_s


def notes_on(runs: Sequence[SpeedRun]) -> Iterator[str]:
    """What is worth knowing beside the targets."""
    for run in runs:
        where = _where(run)
        turns_s = run.row(ALONE).round_s
        if max(turns_s) > (1 + QUIET) * min(turns_s):
            taken = f"the same iterations of one process took {min(turns_s):.2f} to {max(turns_s):.2f} s"
            yield f"{where}: the machine was not quiet ({taken}), so its times decide nothing"
        if run.has(WHOLE):
            whole, over = run.gain(WHOLE, ALONE), run.gain(AUTO, WHOLE)
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
