"""What every export has: a README with the prediction, the ranks, and a script that starts them."""

import csv
import os
import subprocess
from pathlib import Path

import pytest

import penstock
from penstock.export import ENGINES
from penstock.export.launched_ranks import fits_torchrun, launched_ranks
from penstock.export.schedule_csv import parse_schedule_csv, schedule_csv, stages_of_rows
from penstock.export.subject import make_subject
from penstock.plan import find_grid
from penstock.units import show_seconds
from tests.support.exports import block_names, devices, export, make_plan, named_profile, two_hosts

PROFILE = named_profile(block_names(4), architecture="llama")
FOUR = devices(4)
PLAN = make_plan(PROFILE, FOUR, [0, 5, 10], [["d0", "d1"], ["d2", "d3"]], schedule="1f1b")
TWO_HOSTS = two_hosts(2)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_the_readme_states_the_prediction_and_what_is_approximated(engine: str) -> None:
    exported = export(PLAN, PROFILE, FOUR, engine)
    readme = exported.files["README.md"]
    seconds = penstock.evaluate(PLAN, PROFILE, FOUR).timeline.iteration_s
    assert f"Iteration time {show_seconds(seconds)} " in readme
    assert exported.approximations
    assert all(f"- {text}" in readme for text in exported.approximations)
    for device in ("d0", "d1", "d2", "d3"):
        assert f"| {device} |" in readme
    for name, text in exported.files.items():
        assert text.endswith("\n"), name
        assert name in readme or name == "README.md"


def test_ranks_are_numbered_by_pipeline_rank_then_replica() -> None:
    rows = list(csv.DictReader(export(PLAN, PROFILE, FOUR, "torch").files["ranks.csv"].splitlines()))
    assert [(row["rank"], row["device"], row["pipeline_rank"], row["replica"]) for row in rows] == [
        ("0", "d0", "0", "0"),
        ("1", "d1", "0", "1"),
        ("2", "d2", "1", "0"),
        ("3", "d3", "1", "1"),
    ]


@pytest.mark.parametrize(
    ("groups", "fits"),
    [
        ([["h0.d0", "h0.d1"], ["h1.d0", "h1.d1"]], True),
        ([["h1.d0", "h1.d1"], ["h0.d0", "h0.d1"]], True),
        ([["h0.d0", "h1.d0"], ["h0.d1", "h1.d1"]], False),
        ([["h0.d1", "h0.d0"], ["h1.d0", "h1.d1"]], False),
        ([["h0.d0"], ["h1.d0"]], True),
        ([["h0.d0"], ["h0.d1"], ["h1.d0"]], False),
    ],
)
def test_torchrun_is_offered_only_if_it_starts_the_same_ranks(groups: list[list[str]], fits: bool) -> None:
    cuts = [0, 3, 5, 10] if len(groups) == 3 else [0, 5, 10]
    plan = make_plan(PROFILE, TWO_HOSTS, cuts, groups)
    assert fits_torchrun(launched_ranks(find_grid(plan), TWO_HOSTS)) == fits


def test_the_schedule_survives_the_way_through_csv() -> None:
    subject = make_subject(penstock.evaluate(PLAN, PROFILE, FOUR), PROFILE)
    rows = parse_schedule_csv(schedule_csv(subject), where="schedule.csv")
    assert rows == (subject.orders["d0"], subject.orders["d2"])
    assert stages_of_rows(rows, where="schedule.csv") == (0, 1)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0F0,0B\n", "0B"),
        ("0SEND_F0@1\n", "not a compute action"),
        ("", "no actions"),
        (",,\n", "no actions"),
        ("0F0\n0B0\n", "ranks 0 and 1 have actions of stage 0"),
        ("1F0\n", "stage 0 has no actions"),
    ],
)
def test_bad_schedules_are_refused(text: str, what: str) -> None:
    with pytest.raises(penstock.InputError, match=what):
        stages_of_rows(parse_schedule_csv(text, where="schedule.csv"), where="schedule.csv")


def launch(folder: Path, *words: str, address: str = "localhost") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MASTER_ADDR": address, "MASTER_PORT": "29500"}
    command = ["sh", str(folder / "launch.sh"), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plan = make_plan(PROFILE, TWO_HOSTS, [0, 5, 10], [["h0.d1", "h1.d0"], ["h0.d0", "h1.d1"]])
    for name, text in export(plan, PROFILE, TWO_HOSTS, "torch").files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_script_starts_the_ranks_of_a_host(folder: Path) -> None:
    shown = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR"'
    done = launch(folder, "h1", "sh", "-c", shown)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["1 0 4 2 localhost", "3 1 4 2 localhost"]


def test_the_script_ends_all_ranks_when_one_fails(folder: Path) -> None:
    done = launch(folder, "h0", "sh", "-c", 'if [ "$RANK" = 2 ]; then exit 7; fi; exec sleep 50')
    assert done.returncode == 1
    assert "rank 2 failed with exit code 7" in done.stderr


@pytest.mark.parametrize(
    ("words", "address", "said"),
    [
        (("h7", "true"), "localhost", "no rank on host 'h7'"),
        (("h0",), "localhost", "usage"),
        (("h0", "true"), "", "usage"),
    ],
)
def test_wrong_use_of_the_script(folder: Path, words: tuple[str, ...], address: str, said: str) -> None:
    done = launch(folder, *words, address=address)
    assert done.returncode == 2
    assert said in done.stderr
