"""The papers' planners and the others, emulated: the real executor over shaped links, with sleeping devices."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.emulation.cases import Problem
from benchmarks.emulation.paced import emulate_paced
from benchmarks.papers.cases import BIPARTITION, PAPERS, SPP, Paper, emulation_of
from benchmarks.records import Task
from benchmarks.results import Result


class PaperRun(msgspec.Struct, frozen=True):
    """One method on one problem."""

    paper: str
    problem: Problem
    method: str
    num_devices: int
    slow_down: float
    predicted_s: float
    measured_s: tuple[float, ...]
    limits: tuple[str, ...]

    @property
    def emulated_s(self) -> float:
        """The median iteration time."""
        return median(self.measured_s)


class Comparison(msgspec.Struct, frozen=True):
    """A paper's planner and one other on one problem: iteration times of the other over those of the paper's."""

    paper: Paper
    problem: Problem
    baseline: str
    emulated: float
    simulated: float


def tasks_of(paper: Paper, *, quick: bool) -> list[Task]:
    """A task for every problem and method."""
    problems = (paper.quick,) if quick else paper.problems
    methods = (paper.method, *(paper.baselines[:1] if quick else paper.baselines))
    return [Task("emulated", (paper.name, *problem, method.name)) for problem in problems for method in methods]


def run_task(task: Task, folder: Path) -> PaperRun:
    """Emulate a plan."""
    name, *about, title = task.about
    paper = next(item for item in PAPERS if item.name == name)
    problem = Problem(*about)  # type: ignore[arg-type]
    method = next(item for item in (paper.method, *paper.baselines) if item.name == title)
    return PaperRun(paper.name, problem, method.name, **emulate_paced(emulation_of(problem, method, folder))._asdict())


def comparisons(paper: Paper, runs: Sequence[PaperRun]) -> list[Comparison]:
    """All pairs that were emulated."""
    of = {(run.problem, run.method): run for run in runs if run.paper == paper.name}
    found = []
    for problem in dict.fromkeys(problem for problem, _ in of):
        ours = of.get((problem, paper.method.name))
        for baseline in paper.baselines:
            other = of.get((problem, baseline.name))
            if ours is not None and other is not None:
                ratio, predicted = other.emulated_s / ours.emulated_s, other.predicted_s / ours.predicted_s
                found.append(Comparison(paper, problem, baseline.name, ratio, predicted))
    return found


def check_papers(runs: Sequence[PaperRun]) -> Iterator[Result]:
    """Whether the published ratio is reached in emulation, and how far simulation and emulation are apart."""
    for paper in (BIPARTITION, SPP):
        found = comparisons(paper, runs)
        if not found:
            continue
        best = max(found, key=lambda item: item.emulated)
        yield Result(
            f"{paper.name}, largest ratio in emulation",
            f">= {paper.published} x",
            f"{best.emulated:.2f} x (over {best.baseline}, {best.problem.title})",
            best.emulated >= paper.published,
            is_over_all=True,
        )
    apart = [abs(run.predicted_s / run.emulated_s - 1) for run in runs]
    if apart:
        yield Result("simulated against emulated, worst plan", "<= 10%", f"{max(apart):.1%}", max(apart) <= 0.1)


def tables(runs: Sequence[PaperRun]) -> Iterator[str]:
    """One table per paper."""
    for paper in PAPERS:
        lines = [
            f"### {paper.name} (published: up to {paper.published} x)",
            "",
            "| problem | over | emulated | simulated |",
            "|---|---|---:|---:|",
        ]
        for item in sorted(comparisons(paper, runs), key=lambda item: -item.emulated):
            cells = (item.problem.title, item.baseline, f"{item.emulated:.2f} x", f"{item.simulated:.2f} x")
            lines.append(f"| {' | '.join(cells)} |")
        yield "\n".join(lines)
