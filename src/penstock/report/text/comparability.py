"""What the timelines of a report are for: times of different models or clusters do not say which plan is better."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.report.names import shown_name
from penstock.report.subject import Shown


def problem_name(item: Shown) -> str:
    """The model and the cluster."""
    return f"{shown_name(item.plan.profile.name)} on {shown_name(item.plan.cluster.name)}"


def is_mixed(items: Sequence[Shown]) -> bool:
    """Whether there are several models or clusters."""
    return len({item.problem for item in items}) > 1


def with_problem_names(items: Sequence[Shown]) -> list[Shown]:
    """The same; where they are for several problems, names say for which."""
    if not is_mixed(items):
        return list(items)
    return [replace(item, name=f"{item.name}, {problem_name(item)}") for item in items]


def mixed_words(items: Sequence[Shown]) -> str | None:
    """A warning, if they are for several problems."""
    if not is_mixed(items):
        return None
    names = list(dict.fromkeys(map(problem_name, items)))
    alike = len(names) < len({item.problem for item in items})
    differ = " (some have the same name and differ in what they hold)" if alike else ""
    return (
        f"These are for different models or clusters{differ}: {'; '.join(names)}. "
        "Which plan is better can be seen only among those for the same."
    )
