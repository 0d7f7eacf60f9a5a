"""Lists are elided from their limits on: nine parts, five devices."""

import pytest

from penstock.plan.types import Group, Replica, on
from penstock.report.text.placement import elide, format_group

NAMES = [str(number) for number in range(10)]


@pytest.mark.parametrize(
    ("num", "shown"),
    [
        (1, NAMES[:1]),
        (8, NAMES[:8]),
        (9, ["0", "1", "2", "5 more devices", "8"]),
        (10, ["0", "1", "2", "6 more devices", "9"]),
    ],
)
def test_parts(num: int, shown: list[str]) -> None:
    assert elide(NAMES[:num], "devices") == shown


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (on("a"), "a"),
        (on("a", "b", "c", "d"), "a, b, c, d"),
        (on("a", "b", "c", "d", "e"), "a .. e (5 devices)"),
        ((Replica("a", 0.75), Replica("b", 0.25)), "a (75.0 %), b (25.0 %)"),
        ((Replica("a", 0.5), Replica("b", 0.5)), "a, b"),
    ],
)
def test_groups(group: Group, text: str) -> None:
    assert format_group(group) == text
