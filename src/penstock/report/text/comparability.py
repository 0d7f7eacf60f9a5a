"""Comparability of the subjects of a report: times for different models or clusters do not rank plans."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.printable_text import escape_text
from penstock.report.subject import ReportSubject


def problem_name(item: ReportSubject) -> str:
    """The names of the model and of the cluster."""
    return f"{escape_text(item.plan.profile.name)} on {escape_text(item.plan.cluster.name)}"


def is_mixed(items: Sequence[ReportSubject]) -> bool:
    """Whether the subjects are for several models or clusters."""
    return len({item.problem for item in items}) > 1


def with_problem_names(items: Sequence[ReportSubject]) -> list[ReportSubject]:
    """Append model and cluster to the names of subjects that are for several problems.

    Args:
        items: The subjects of a report.

    Returns:
        The subjects unchanged if all are for the same problem, otherwise renamed copies.
    """
    if not is_mixed(items):
        return list(items)
    return [replace(item, name=f"{item.name}, {problem_name(item)}") for item in items]


def mixed_problems_warning(items: Sequence[ReportSubject]) -> str | None:
    """A warning where the subjects are for several problems.

    Args:
        items: The subjects of a report.

    Returns:
        The warning; None where all subjects are for the same problem.
    """
    if not is_mixed(items):
        return None
    names = list(dict.fromkeys(map(problem_name, items)))
    alike = len(names) < len({item.problem for item in items})
    note = " (some have the same name but different contents)" if alike else ""
    return (
        f"These plans are for different models or clusters{note}: {'; '.join(names)}. "
        "Compare only plans for the same model and cluster."
    )
