"""Reading the files of a report: plans, programs and timelines, with predictions for measured ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.bundle import PlanBundle, ProfileSource, format_of, open_plan
from penstock.cli.console import Console
from penstock.errors import PenstockError
from penstock.plan import FORMAT as PLAN_FORMAT
from penstock.plan import Plan
from penstock.printable_text import escape_text
from penstock.program import FORMAT as PROGRAM_FORMAT
from penstock.report import ReportSubject, with_unique_names
from penstock.report.html.payload import PageData
from penstock.report.text import mixed_problems_warning, with_problem_names
from penstock.simulate import Evaluation, Interval, evaluate_costs, predict
from penstock.timeline import FORMAT as TIMELINE_FORMAT
from penstock.timeline import bubble_fraction, load_timeline

KNOWN = (PLAN_FORMAT, PROGRAM_FORMAT, TIMELINE_FORMAT)


def read_report_items(
    console: Console, paths: Sequence[str], *, profile: str | None, cluster: str | None, force: bool
) -> list[ReportSubject]:
    """Read each file. A measured timeline comes with its prediction, if that can be simulated."""
    opener = _Opener(console, ProfileSource(profile) if profile else None, cluster, force)
    subjects: list[ReportSubject] = []
    predicted: dict[int, ReportSubject] = {}
    with console.working("reading, proving and simulating (the very first run compiles the simulator)"):
        for index, path in enumerate(paths):
            if format_of(path, KNOWN) == TIMELINE_FORMAT:
                item, prediction = opener.timeline(path)
                subjects.append(item)
                if prediction is not None:
                    predicted[index] = prediction
            else:
                subjects.append(opener.plan(path))
    subjects = with_unique_names(with_problem_names(_with_predictions(subjects, predicted)))
    mixed = mixed_problems_warning(subjects)
    if mixed is not None:
        console.warn(mixed)
    return subjects


def _with_predictions(subjects: list[ReportSubject], predicted: dict[int, ReportSubject]) -> list[ReportSubject]:
    """Insert the prediction after each measured timeline, unless a file has the same already."""
    simulated = [item for item in subjects if not item.is_measured]
    result = []
    for index, item in enumerate(subjects):
        result.append(item)
        prediction = predicted.get(index)
        if prediction is not None and not any(map(prediction.is_same_work, simulated)):
            result.append(prediction)
            simulated.append(prediction)
    return result


class _Opener:
    """Reads files with the profile and the cluster that they name, or with those of the options."""

    def __init__(self, console: Console, profile: ProfileSource | None, cluster: str | None, force: bool) -> None:
        self._console = console
        self._profile = profile
        self._cluster = cluster
        self._force = force

    def plan(self, path: str) -> ReportSubject:
        """Simulate a plan or a program, also one that does not fit into memory."""
        bundle = open_plan(path, profile=self._profile, cluster=self._cluster, schedule=None, force=self._force)
        result = self._evaluated(bundle)
        return ReportSubject(
            _name(path, bundle.plan), result.timeline, result.costs, bundle.profile, _interval(bundle, result)
        )

    def timeline(self, path: str) -> tuple[ReportSubject, ReportSubject | None]:
        """Read a timeline; if it was measured, also simulate its prediction, if the plan's sources exist."""
        timeline = load_timeline(path)
        plan = timeline.program.plan
        try:
            bundle = open_plan(
                path, profile=self._profile, cluster=self._cluster, schedule=None, force=self._force, plan=plan
            )
            result = self._evaluated(bundle)
        except PenstockError as error:
            if self._profile or self._cluster:
                raise
            reason = f"{error.where}: {error.what}" if error.where else error.what
            self._console.warn(f"{escape_text(path)}: shown without links, limits and prediction: {reason}")
            return ReportSubject(_name(path, plan), timeline), None
        subject = ReportSubject(_name(path, plan), timeline, result.costs, bundle.profile)
        if not subject.is_measured or not result.program.same_actions(timeline.program):
            return subject, None
        return subject, ReportSubject(
            f"prediction for {Path(path).name}",
            result.timeline,
            result.costs,
            bundle.profile,
            _interval(bundle, result),
        )

    def _evaluated(self, bundle: PlanBundle) -> Evaluation:
        for note in bundle.costs.notes:
            self._console.warn(note)
        return evaluate_costs(bundle.costs, program=bundle.program, within_memory=False)


def _interval(bundle: PlanBundle, result: Evaluation) -> Interval:
    return predict(result.proof, bundle.profile).interval


def _name(path: str, plan: Plan) -> str:
    """The file's name, with planner and schedule unless they are part of it."""
    stem = Path(path).stem
    is_named = all(word in stem for word in (plan.planner, plan.schedule))
    return stem if is_named else f"{stem}: {plan.planner} + {plan.schedule}"


def report_data(items: Sequence[ReportSubject], data: PageData, path: str, num_bytes: int) -> dict[str, Any]:
    """The figures and sentences of a report, as data."""
    return {
        "path": path,
        "num_bytes": num_bytes,
        "timelines": [
            {
                "name": item.name,
                "origin": item.timeline.origin,
                "iteration_s": item.timeline.iteration_s,
                "bubble_fraction": bubble_fraction(item.timeline),
                "num_actions": item.timeline.program.num_actions,
                "bound_s": item.bound.seconds if item.bound and not item.is_measured else None,
                "words": [words.lead, *words.sentences],
                "helps": [item._asdict() for item in words.improvements],
            }
            for item, words in zip(items, data.summaries, strict=True)
        ],
    }
