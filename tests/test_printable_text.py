"""Text from outside: what reaches a terminal, a page or a JSON document prints, and stays on its line."""

import io as streams
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from penstock import load_cluster, load_profile, plan
from penstock.cli.console import _RichConsole
from penstock.cluster.toml import write_cluster
from penstock.errors import InputError, PenstockError
from penstock.names import MAX_NAME_LENGTH
from penstock.plan import save_plan
from penstock.printable_text import escape_json, escape_lines, escape_text
from penstock.profile import save_profile
from tests.support.command_line import Run
from tests.support.reach import reach, reaches

HOSTILE = "a\x1b[31mb\r\n\u202egnp\x9b2J\x07<script>\u2066z\ud800"
TEXT = st.text(st.characters() | st.sampled_from("\x1b\r\n\x9b\u202e\u2066\u200b"))


@reaches(changed=0.2, unchanged=0.05)
@given(TEXT)
def test_escaped_text_prints(text: str) -> None:
    reach("unchanged" if escape_text(text) == text else "changed")
    assert escape_text(text).isprintable()
    assert all(line.isprintable() for line in escape_lines(text).split("\n"))
    assert escape_lines(text).count("\n") == text.count("\n")


@reaches(changed=0.1)
@given(st.dictionaries(TEXT, st.lists(TEXT)))
def test_escaped_json_prints_and_has_the_same_value(value: dict[str, list[str]]) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    reach("changed", escape_json(text) != text)
    assert all(line.isprintable() for line in escape_json(text).split("\n"))
    assert json.loads(escape_json(text)) == value


def test_an_error_shows_no_control_character_and_no_forged_line() -> None:
    error = PenstockError(f"no {HOSTILE}", where=HOSTILE, hint=f"Use {HOSTILE}")
    lines = str(error).split("\n")
    assert all(line.isprintable() for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])


def test_an_error_shows_the_beginning_of_a_long_text() -> None:
    text = str(InputError("x" * 5_000_000, hint="y" * 5_000_000))
    assert len(text) < 25_000
    assert "characters more" in text


def test_the_console_escapes_what_it_prints() -> None:
    file = streams.StringIO()
    console = _RichConsole(file=file, force_terminal=True, width=300, markup=False)
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    console.print(HOSTILE)
    console.print(table)
    console.print("bold", style="bold")
    shown = file.getvalue()
    assert "\x1b[1m" in shown
    assert "\x1b[31m" not in shown
    assert not set("\r\x9b\x07\u202e\u2066") & set(shown)


@pytest.fixture(scope="module")
def hostile_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A profile, a cluster and a plan, all of whose names are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    name = HOSTILE[:-1]
    profile = load_profile("gpt2", kinds=["T4"], micro_batch_size=1, sequence=64)
    units = tuple(msgspec.structs.replace(unit, name=f"{unit.name}{name}") for unit in profile.units)
    profile = msgspec.structs.replace(profile, name=name, units=units)
    cluster = load_cluster("2 x T4 @ 10 GB/s")
    devices = tuple(msgspec.structs.replace(device, name=f"{device.name}{name}") for device in cluster.devices)
    cluster = msgspec.structs.replace(cluster, name=name, devices=devices, links=())
    files = folder / "profile.json", folder / "cluster.toml", folder / "plan.json"
    save_profile(profile, files[0])
    files[1].write_text(write_cluster(cluster))
    save_plan(plan(profile, cluster, 4, planner="balanced"), files[2])
    return files


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize("verb", ["plan", "simulate", "check", "compare", "show", "report"])
def test_commands_print_hostile_names_escaped(
    run: Run, hostile_files: tuple[Path, Path, Path], tmp_path: Path, verb: str, is_json: bool
) -> None:
    profile, cluster, planned = map(str, hostile_files)
    sources = ["--profile", profile, "--cluster", cluster]
    arguments = {
        "plan": ["plan", *sources, "-m", "4", "--planner", "balanced"],
        "simulate": ["simulate", planned, *sources],
        "check": ["check", planned, *sources],
        "compare": ["compare", *sources, "-m", "4", "--planners", "balanced,uniform", "--schedules", "1f1b"],
        "show": ["cluster", "show", cluster],
        "report": ["report", planned, *sources, "-o", str(tmp_path / "page.html")],
    }[verb]
    result = run(*arguments, *(["--json"] if is_json else []))
    assert result.code == 0, result.err
    for stream in (result.out, result.err):
        assert all(line.isprintable() for line in stream.split("\n"))
    if verb == "report":
        page = (tmp_path / "page.html").read_text()
        assert not set("\x1b\r\x9b\x07\u202e\u2066") & set(page)


def test_names_have_a_greatest_length() -> None:
    profile = load_profile("gpt2", kinds=["T4"], micro_batch_size=1, sequence=64)
    for value in (profile, load_cluster("1 x T4 @ 1 GB/s")):
        with pytest.raises(ValueError, match=r"has 1,001 characters; at most 1,000"):
            msgspec.structs.replace(value, name="x" * (MAX_NAME_LENGTH + 1))
