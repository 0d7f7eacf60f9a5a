"""Predicted against tabulated iteration times of GPT models on one host of A100s, against the targets in README.md.

    python benchmarks/truth/main.py [FOLDER]           all rows
    python benchmarks/truth/main.py [FOLDER] --quick   every fifth row

Prints error distributions, then one line per target with the measurement and `ok` or `short`. Exits with 1 if a target
is missed, with 2 without the table.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.instances import DEFAULT_FOLDER
from benchmarks.results import Result
from benchmarks.truth.baselines import fit_regression, formula_s
from benchmarks.truth.factors import fit_factors
from benchmarks.truth.measured_layers import measure_layers, measured_rows, trained_bytes
from benchmarks.truth.prediction import DATA_SHEET, Factors, Predictor
from benchmarks.truth.prediction_errors import Errors, errors_of, ranking_of
from benchmarks.truth.rows import Row, read_all_reduce_tables, read_rows
from penstock.errors import InputError
from penstock.profile import measured_all_reduce

FOUR = ("matmul_fraction", "bandwidth_fraction", "launch_s", "misaligned_fraction")
NUM_PIPELINES = 12
FITTED_LAYERS = 24
FITTED_HIDDEN = 1024

Predict = Callable[[Row], float]


def fitted_rows(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Data-parallel rows, one for each model, degree and micro-batch size; and 12 pipelines of one model.

    Other numbers of micro-batches and the table's other pipelines are not looked at.
    """
    chosen: dict[object, Row] = {}
    for row in rows:
        if row.tensor == 1 and row.pipeline == 1:
            chosen.setdefault((row.model, row.micro_batch_size, row.data), row)
    one_model = [
        row
        for row in rows
        if row.tensor == 1
        and row.pipeline > 1
        and (row.model.hidden, row.model.layers) == (FITTED_HIDDEN, FITTED_LAYERS)
    ]
    one_model.sort(key=lambda row: (row.micro_batch_size, row.pipeline, row.data, row.num_microbatches))
    step = max(1, len(one_model) // NUM_PIPELINES)
    return list(chosen.values()), one_model[::step][:NUM_PIPELINES]


def regularity(rows: Sequence[Row]) -> float:
    """The largest relative distance of a configuration's iterations from a line over its numbers of micro-batches."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.micro_batch_size, row.tensor, row.data, row.pipeline), []).append(row)
    worst = 0.0
    for members in groups.values():
        if len(members) > 2:
            counts = np.array([row.num_microbatches for row in members], dtype=np.float64)
            seconds = np.array([row.iteration_s for row in members])
            line = np.polyval(np.polyfit(counts, seconds, 1), counts)
            worst = max(worst, float(np.abs(line / seconds - 1).max()))
    return worst


def show(title: str, rows: Sequence[Row], predict: Predict) -> None:
    """Print the error distributions of a prediction, by degrees and by size."""
    predicted = {row: predict(row) for row in rows}
    print(f"\n{title}\n  {'rows':24} {'count':>5} {'median':>8} {'90 % within':>12} {'bias':>8}")
    parts: list[tuple[str, list[Row]]] = [("all", list(rows))]
    for name, values in (
        ("tensor", [row.tensor for row in rows]),
        ("pipeline", [row.pipeline for row in rows]),
        ("data", [row.data for row in rows]),
        ("micro-batch", [row.micro_batch_size for row in rows]),
        ("hidden", [row.model.hidden for row in rows]),
    ):
        for value in sorted(set(values)):
            parts.append((f"{name} {value}", [row for row, has in zip(rows, values, strict=True) if has == value]))
    for name, part in parts:
        found = errors_of(part, [predicted[row] for row in part])
        print(f"  {name:24} {found.num_rows:5} {found.median:8.1%} {found.ninety:12.1%} {found.bias:+8.1%}")


def within(what: str, found: Errors, median: float, ninety: float | None) -> list[Result]:
    """The results for targets of a distribution."""
    results = [Result(f"{what}: median error", f"<= {median:.0%}", f"{found.median:.1%}", found.median <= median, True)]
    if ninety is not None:
        results.append(
            Result(f"{what}: 90 % within", f"<= {ninety:.0%}", f"{found.ninety:.1%}", found.ninety <= ninety, True)
        )
    return results


def describe(factors: Factors) -> str:
    """The factors in one line."""
    return ", ".join(f"{name} {value:.3g}" for name, value in factors._asdict().items())


def run(rows: Sequence[Row], single: Sequence[Row], folder: Path) -> list[Result]:
    """Fit, predict, print, and compare with the targets. `single`: rows without pipelines, to measure layers."""
    tables = read_all_reduce_tables(folder)
    data_rows, pipeline_rows = fitted_rows(rows)
    used = {*data_rows, *pipeline_rows}
    alone = Predictor(tables)
    four = fit_factors([*data_rows, *pipeline_rows], tables, FOUR, DATA_SHEET)
    groups = [row for row in rows if row.tensor > 1 and row.pipeline == 1 and row.data == 1]
    six = fit_factors(groups, tables, ("reduction_s", "launch_s"), four._replace(reduction_s=1e-4))
    print(f"iterations are affine in the number of micro-batches up to {regularity(rows):.0e}")
    print(f"data sheet: {describe(DATA_SHEET)}")
    print(
        f"four factors, fitted on {len(data_rows)} data-parallel rows and {len(pipeline_rows)} pipelines: "
        f"{describe(four)}"
    )
    print(f"two more for tensor degrees above 1, fitted on {len(groups)} rows without pipelines: {describe(six)}")
    fitted, grouped = Predictor(tables, four), Predictor(tables, six)

    def both(row: Row) -> float:
        return (fitted if row.tensor == 1 else grouped).seconds(row)

    reduced_bytes = {row: trained_bytes(alone.profile(row)) for row in single}
    by_layers = Predictor(tables, layers=measure_layers(single, measured_all_reduce(tables), reduced_bytes))
    with_others = [row for row in rows if row not in set(single)]
    others = [row for row in rows if row not in used]
    pipelines = [row for row in others if row.tensor == 1 and row.pipeline > 1]
    unseen = [row for row in others if row not in set(groups)]
    regression = fit_regression(rows)
    show("simulated, nothing fitted", rows, alone.seconds)
    show("simulated, six factors", unseen, both)

    show("simulated, layers as measured without pipelines", with_others, by_layers.seconds)

    def formula(row: Row) -> float:
        return formula_s(row, fitted if row.tensor == 1 else grouped)

    show("(M + S - 1) x mean stage, with the same factors", unseen, formula)
    show("regression with three terms, fitted on all rows", rows, regression)

    def errors(part: Sequence[Row], predict: Predict) -> Errors:
        return errors_of(part, [predict(row) for row in part])

    factors_ranking = ranking_of(rows, [both(row) for row in rows])
    ranking = ranking_of(rows, [by_layers.seconds(row) for row in rows])
    unseen_ranking = ranking_of(with_others, [by_layers.seconds(row) for row in with_others])
    plain = [row for row in rows if row.tensor == 1]
    order = ranking_of(plain, [fitted.seconds(row) for row in plain])
    for what, found in (
        ("layers as measured without pipelines", ranking),
        ("the same, rows that were not measured only", unseen_ranking),
        ("six factors", factors_ranking),
        ("four factors, tensor degree 1 only", order),
    ):
        print(
            f"order of configurations, {what}, {found.groups} models and batches: Kendall's tau {found.tau:.3f}, "
            f"fastest found in {found.found:.0%}, at most {found.loss:.1%} lost"
        )
    return [
        *within("pipelines, tensor degree 1, four factors", errors(pipelines, fitted.seconds), 0.03, 0.08),
        *within("all tensor degrees, six factors", errors(unseen, both), 0.06, 0.14),
        *within("nothing fitted", errors(rows, alone.seconds), 0.15, None),
        *within("layers as measured without pipelines, other rows", errors(with_others, by_layers.seconds), 0.06, 0.14),
        Result(f"Kendall's tau, mean of {ranking.groups} models and batches", ">= 0.95", f"{ranking.tau:.3f}",
               ranking.tau >= 0.95, True),
        Result("fastest configuration found", ">= 80 %", f"{ranking.found:.0%}", ranking.found >= 0.8, True),
        Result("time lost by the one chosen, worst", "<= 5 %", f"{ranking.loss:.1%}", ranking.loss <= 0.05, True),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    try:
        rows = read_rows(options.folder)
        results = run(rows[::5] if options.quick else rows, measured_rows(rows), options.folder)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print()
    for result in results:
        print(result.line(quick=options.quick))
    return 0 if all(result.reached or (options.quick and result.is_over_all) for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
