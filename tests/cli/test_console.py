"""What goes to a file or to another program is whole, however wide it is."""

import pytest

from penstock.cli.console import Console


def test_a_wide_table_is_not_cut_where_nobody_looks(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = [f"column {number}" for number in range(30)]
    rows = [["a name of some length"] * 2 + [f"{number},000,000" for number in range(28)]]
    Console().table("a title", columns, rows, left=2)
    _, head, line, *_ = capfd.readouterr().out.splitlines()
    for text in columns:
        assert text in head
    for text in rows[0]:
        assert text in line
    assert "…" not in head + line
