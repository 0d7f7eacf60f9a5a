"""The tables of the README, from what is on record."""

from collections.abc import Iterator, Sequence

from benchmarks.emulation.targets import RIVALS, by_problem, tau
from benchmarks.emulation.emulated_runs import EmulatedRun


def tables(runs: Sequence[EmulatedRun]) -> Iterator[str]:
    """All of them."""
    yield _errors(runs)
    yield _gains(runs)


def _errors(runs: Sequence[EmulatedRun]) -> str:
    lines = [
        "| problem | devices | method | slowed down | predicted | emulated | simulator off by | tau |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for problem, found in by_problem(runs).items():
        rank = tau(list(found.values()))
        for number, run in enumerate(found.values()):
            first = number == 0
            lines.append(
                f"| {problem.title if first else ''} | {run.num_devices} | {run.method} | {run.slow_down:g} x | "
                f"{run.predicted_s * 1e3:.1f} ms | {run.emulated_s * 1e3:.1f} ms | {run.error:+.1%} | "
                f"{'' if rank is None or not first else f'{rank:.2f}'} |"
            )
    return "\n".join(lines)


def _gains(runs: Sequence[EmulatedRun]) -> str:
    heads = " | ".join(f"over {baseline}" for baseline in RIVALS)
    lines = [f"| speed-up of auto: emulated (predicted) | {heads} |", f"|---|{'---|' * len(RIVALS)}"]
    for problem, found in by_problem(runs).items():
        if "auto" not in found:
            continue
        auto = found["auto"]
        cells = []
        for baseline in RIVALS:
            other = found.get(baseline)
            cells.append(
                ""
                if other is None
                else f"{other.emulated_s / auto.emulated_s:.2f} ({other.predicted_s / auto.predicted_s:.2f})"
            )
        lines.append(f"| {problem.title} | {' | '.join(cells)} |")
    return "\n".join(lines)
