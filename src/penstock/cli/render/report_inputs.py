"""From the files that a report is asked about to what it shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.bundle import Opened, ProfileSource, format_of, open_plan
from penstock.cli.console import Screen
from penstock.errors import PenstockError
from penstock.plan import FORMAT as PLAN_FORMAT
from penstock.plan import Plan
from penstock.program import FORMAT as PROGRAM_FORMAT
from penstock.report import Shown, shown_name, with_own_names
from penstock.report.html.payload import PageData
from penstock.report.text import mixed_words, with_problem_names
from penstock.simulate import Evaluation, evaluate_costs
from penstock.timeline import FORMAT as TIMELINE_FORMAT
from penstock.timeline import bubble_fraction, load_timeline

KNOWN = (PLAN_FORMAT, PROGRAM_FORMAT, TIMELINE_FORMAT)


def shown_items(
    screen: Screen, paths: Sequence[str], *, profile: str | None, cluster: str | None, force: bool
) -> list[Shown]:
    """What each file holds; a measured timeline comes with what was predicted, if that can be worked out."""
    opener = _Opener(screen, ProfileSource(profile) if profile else None, cluster, force)
    given: list[Shown] = []
    predicted: dict[int, Shown] = {}
    with screen.working("reading, proving and simulating (the very first run compiles the simulator)"):
        for place, path in enumerate(paths):
            if format_of(path, KNOWN) == TIMELINE_FORMAT:
                item, prediction = opener.timeline(path)
                given.append(item)
                if prediction is not None:
                    predicted[place] = prediction
            else:
                given.append(opener.plan(path))
    found = with_own_names(with_problem_names(_with_predictions(given, predicted)))
    mixed = mixed_words(found)
    if mixed is not None:
        screen.warn(mixed)
    return found


def _with_predictions(given: list[Shown], predicted: dict[int, Shown]) -> list[Shown]:
    """Behind each measured timeline its prediction, unless the same is there already: what was named comes first."""
    simulated = [item for item in given if not item.is_measured]
    found = []
    for place, item in enumerate(given):
        found.append(item)
        prediction = predicted.get(place)
        if prediction is not None and not any(map(prediction.is_same_work, simulated)):
            found.append(prediction)
            simulated.append(prediction)
    return found


class _Opener:
    """Reads files with the profile and the cluster that they name, or with others that were given."""

    def __init__(self, screen: Screen, profile: ProfileSource | None, cluster: str | None, force: bool) -> None:
        self._screen = screen
        self._profile = profile
        self._cluster = cluster
        self._force = force

    def plan(self, path: str) -> Shown:
        """A plan or a program, simulated. One that does not fit into memory is shown as well."""
        opened = open_plan(path, profile=self._profile, cluster=self._cluster, schedule=None, force=self._force)
        result = self._evaluated(opened)
        return Shown(_name(path, opened.plan), result.timeline, result.costs, opened.profile)

    def timeline(self, path: str) -> tuple[Shown, Shown | None]:
        """A timeline, and if it was measured its prediction, as far as the plan's sources are found."""
        timeline = load_timeline(path)
        plan = timeline.program.plan
        try:
            opened = open_plan(
                path, profile=self._profile, cluster=self._cluster, schedule=None, force=self._force, plan=plan
            )
            result = self._evaluated(opened)
        except PenstockError as error:
            if self._profile or self._cluster:
                raise
            first = str(error).partition("\n")[0]
            self._screen.warn(f"{shown_name(path)}: shown without links, limits and a prediction, as {first}")
            return Shown(_name(path, plan), timeline), None
        found = Shown(_name(path, plan), timeline, result.costs, opened.profile)
        if not found.is_measured or not result.program.same_actions(timeline.program):
            return found, None
        return found, Shown(f"prediction for {Path(path).name}", result.timeline, result.costs, opened.profile)

    def _evaluated(self, opened: Opened) -> Evaluation:
        for note in opened.costs.notes:
            self._screen.warn(note)
        return evaluate_costs(opened.costs, program=opened.program, within_memory=False)


def _name(path: str, plan: Plan) -> str:
    """After the file, with planner and schedule where the file's name does not say them."""
    stem = Path(path).stem
    told = all(word in stem for word in (plan.planner, plan.schedule))
    return stem if told else f"{stem}: {plan.planner} + {plan.schedule}"


def report_data(items: Sequence[Shown], data: PageData, path: str, num_bytes: int) -> dict[str, Any]:
    """The figures and words of a report, for machines."""
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
                "helps": [found._asdict() for found in words.helps],
            }
            for item, words in zip(items, data.words, strict=True)
        ],
    }
