"""The table of a profile: every layer up to the limit; beyond it the first and the last ones."""

import pytest

from penstock.cli.commands import profile as command
from penstock.cli.console import Console
from tests.support.small import equal_profile


def layers(capsys: pytest.CaptureFixture[str], num_units: int, *, verbose: bool = False) -> list[str]:
    """The first column of the table, without the title and the heading."""
    profile = equal_profile(num_units, forward_s=2.0, cut_bytes=3, saved_bytes=5, parameter_bytes=7)
    command._show(Console(verbose=verbose), profile, "k")
    rows = [line.split("  ")[0].strip() for line in capsys.readouterr().out.splitlines()]
    return [row for row in rows if row.startswith(("u", "...", "all"))]


@pytest.mark.parametrize(
    ("num_units", "shown"),
    [
        (3, ["u0", "u1", "u2"]),
        (4, ["u0", "u1", "u2", "u3"]),
        (5, ["u0", "u1", "... 1 more with -v ...", "u3", "u4"]),
        (9, ["u0", "u1", "... 5 more with -v ...", "u7", "u8"]),
    ],
)
def test_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, num_units: int, shown: list[str]
) -> None:
    monkeypatch.setattr(command, "MAX_ROWS", 4)
    total = f"all {num_units} layers"
    assert layers(capsys, num_units) == [*shown, total]
    assert layers(capsys, num_units, verbose=True) == [*(f"u{number}" for number in range(num_units)), total]


def test_the_last_row_has_the_sums(capsys: pytest.CaptureFixture[str]) -> None:
    profile = equal_profile(4, forward_s=2.0, input_grad_s=3.0, weight_grad_s=4.0, saved_bytes=5, parameter_bytes=7)
    command._show(Console(), profile, "k")
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("all 4 layers"))
    assert row.split()[3:] == ["8.00", "s", "12.0", "s", "16.0", "s", "20", "B", "28", "B"]
