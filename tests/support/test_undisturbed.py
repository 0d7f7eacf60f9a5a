"""`make test` finds the files with timing tests by the decorator's name."""

from tests.support.paths import REPOSITORY

DECORATOR = "tests/support/undisturbed.py"
MARK = "mark.timed"


def test_only_the_decorator_marks_tests_as_timed() -> None:
    paths = {str(path.relative_to(REPOSITORY)): path for path in (REPOSITORY / "tests").rglob("*.py")}
    marking = {name for name, path in paths.items() if MARK in path.read_text(encoding="utf-8")}
    assert marking - {"tests/support/test_undisturbed.py"} == {DECORATOR}
