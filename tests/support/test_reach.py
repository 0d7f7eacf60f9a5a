"""Counts over the examples of a property test, and that every property test has some."""

import ast
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.paths import REPOSITORY
from tests.support.reach import ROUNDS, reach, reaches

EXCEPTIONS = {"tests/support/test_reach.py:refuse_everything": "`test_too_few` decorates it"}
"""Functions with `@given` that need no `@reaches` of their own, and why."""


@reaches(even=0.2, odd=0.2)
@settings(max_examples=50)
@given(number=st.integers(0, 1000))
def test_enough(number: int) -> None:
    reach("even", number % 2 == 0)
    reach("odd", number % 2)


@settings(max_examples=50)
@given(number=st.integers(0, 1000))
def refuse_everything(number: int) -> None:
    reach("negative", number < 0)
    reach("any")


def test_too_few() -> None:
    reaches(any=1.0)(refuse_everything)()
    with pytest.raises(AssertionError, match=r"only 0 of [0-9]+ examples reach 'negative'"):
        reaches(any=1.0, negative=0.0)(refuse_everything)()


def test_further_examples_of_other_seeds() -> None:
    seen: list[int] = []

    @reaches(late=0.0)
    @settings(max_examples=5)
    @given(number=st.integers(0, 2**60))
    def check(number: int) -> None:
        seen.append(number)
        reach("late", len(set(seen)) > 10)

    check()
    assert 10 < len(set(seen)) <= 5 * ROUNDS


@pytest.mark.parametrize("base", [1, 2])
@reaches(any=1.0)
@settings(max_examples=5)
@given(number=st.integers())
def test_arguments_of_pytest_are_passed_on(base: int, number: int) -> None:
    assert base in (1, 2)
    assert isinstance(number, int)
    reach("any")


def name_of(decorator: ast.expr) -> str:
    """The name of a decorator, without its module and arguments."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function).rpartition(".")[2]


def property_tests(source: str) -> Iterator[tuple[str, bool]]:
    """Each function with `@given`, also inside others, and whether `@reaches` stands above it with a share."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [name_of(item) for item in node.decorator_list]
            if "given" in names:
                above = node.decorator_list[: names.index("given")]
                shares = [item.keywords for item in above if isinstance(item, ast.Call) and name_of(item) == "reaches"]
                yield node.name, any(shares)


@pytest.mark.parametrize(
    ("above", "counts"),
    [
        ("@reaches(any=1.0)\n@given(x)\n", True),
        ("@pytest.mark.slow\n@reach.reaches(any=1.0)\n@settings()\n@hypothesis.given(x)\n", True),
        ("@given(x)\n", False),
        ("@given(x)\n@reaches(any=1.0)\n", False),
        ("@reaches()\n@given(x)\n", False),
    ],
)
def test_property_tests_are_found(above: str, counts: bool) -> None:
    assert list(property_tests(f"{above}def test_it(x): pass")) == [("test_it", counts)]


def test_every_property_test_counts_what_it_reaches() -> None:
    without = set()
    num_counted = 0
    for path in sorted((REPOSITORY / "tests").rglob("*.py")):
        for name, counts in property_tests(path.read_text(encoding="utf-8")):
            num_counted += counts
            if not counts:
                without.add(f"{path.relative_to(REPOSITORY).as_posix()}:{name}")
    assert without == set(EXCEPTIONS), "put @reaches(name=share) above @given, or state why it needs none"
    assert num_counted > 100
