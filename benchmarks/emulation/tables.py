"""The tables of the README, from the records."""

from collections.abc import Iterator, Sequence

from benchmarks.emulation.emulated_runs import EmulatedRun
from benchmarks.emulation.targets import BASELINES, by_problem, tau


def tables(runs: Sequence[EmulatedRun]) -> Iterator[str]:
    """All tables."""
    yield _errors(runs)
    yield _gains(runs)


def _errors(runs: Sequence[EmulatedRun]) -> str:
    lines = [
        "| problem | devices | method | slowed down | predicted | emulated | simulator off by | tau |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for problem, by_method in by_problem(runs).items():
        rank = tau(list(by_method.values()))
        for number, run in enumerate(by_method.values()):
            first = number == 0
            lines.append(
                f"| {problem.title if first else ''} | {run.num_devices} | {run.method} | {run.slow_down:g} x | "
                f"{run.predicted_s * 1e3:.1f} ms | {run.emulated_s * 1e3:.1f} ms | {run.error:+.1%} | "
                f"{'' if rank is None or not first else f'{rank:.2f}'} |"
            )
    return "\n".join(lines)


def _gains(runs: Sequence[EmulatedRun]) -> str:
    heads = " | ".join(f"over {baseline}" for baseline in BASELINES)
    lines = [f"| speed-up of auto: emulated (predicted) | {heads} |", f"|---|{'---|' * len(BASELINES)}"]
    for problem, by_method in by_problem(runs).items():
        if "auto" not in by_method:
            continue
        auto = by_method["auto"]
        cells = []
        for baseline in BASELINES:
            other = by_method.get(baseline)
            cells.append(
                ""
                if other is None
                else f"{other.emulated_s / auto.emulated_s:.2f} ({other.predicted_s / auto.predicted_s:.2f})"
            )
        lines.append(f"| {problem.title} | {' | '.join(cells)} |")
    return "\n".join(lines)
