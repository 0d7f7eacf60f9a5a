"""The profile and the cluster of a plan are found wherever the plan is used."""

import shutil
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.bundle.reader import open_plan
from penstock.errors import InputError, MismatchError
from tests.support.command_line import Run

TOML = 'hosts = 1\ndevices_per_host = 2\nkind = "T4"\ninside = "{} GB/s"\n'


@pytest.fixture
def made(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan whose files were named from the folder above it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "work"
    folder.mkdir()
    assert run("profile", "gpt2", "--kind", "T4", "-o", "work/p.json", "-q").code == 0
    Path("work/c.toml").write_text(TOML.format(1))
    words = ("plan", "--planner", "balanced", "--profile", "work/p.json", "--cluster", "work/c.toml", "-m", "2")
    assert run(*words, "-o", "work/plan.json", "--program", "work/program.json", "-q").code == 0
    return folder


def opened_cluster(path: str) -> penstock.Cluster:
    return open_plan(path, profile=None, cluster=None, schedule=None, force=False).cluster


@pytest.mark.parametrize("verb", ["check", "simulate", "report"])
def test_from_the_folder_of_the_plan(run: Run, made: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.chdir(made)
    for name in ("plan.json", "program.json"):
        done = run(verb, name, "-q")
        assert done.code == 0, done.err


def test_from_anywhere(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert opened_cluster("../work/plan.json").num_devices == 2
    # With the folders that the plan names under its own.
    shutil.copytree(made, elsewhere / "deep" / "work")
    (elsewhere / "deep" / "work" / "plan.json").rename(elsewhere / "deep" / "plan.json")
    assert opened_cluster("deep/plan.json").num_devices == 2


def test_the_contents_decide(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    # What has the very name, but is another cluster, is not taken for the plan's.
    (made / "work").mkdir()
    (made / "work" / "c.toml").write_text(TOML.format(7))
    assert opened_cluster("plan.json").bandwidth[0, 1] == 1e9
    # One that cannot be read is passed over as well.
    (made / "work" / "c.toml").write_text("hosts = ")
    assert opened_cluster("plan.json").bandwidth[0, 1] == 1e9
    # Where no contents are right, that is said, and of what was named itself.
    (made / "work" / "c.toml").write_text(TOML.format(7))
    (made / "c.toml").write_text(TOML.format(8))
    with pytest.raises(MismatchError, match="made for another cluster"):
        opened_cluster("plan.json")
    forced = open_plan("plan.json", profile=None, cluster=None, schedule=None, force=True)
    assert forced.cluster.bandwidth[0, 1] == 7e9


def test_nothing_found_is_told_with_the_name_in_the_plan(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    (made / "c.toml").unlink()
    with pytest.raises(InputError) as caught:
        opened_cluster("plan.json")
    assert caught.value.where == "work/c.toml"
    assert "name another with --cluster" in caught.value.hint


def test_a_spec_is_never_taken_for_a_file(run: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    # The last part of this spec, taken as a path, is the name of a file that is there.
    Path("s").write_text(TOML.format(3))
    words = ("plan", "--planner", "balanced", "--profile", "p.json", "--cluster", "2 x T4 @ 2 GB/s", "-m", "2")
    assert run(*words, "-o", "short.json", "-q").code == 0
    assert opened_cluster("short.json").bandwidth[0, 1] == 2e9


@pytest.mark.parametrize("with_option", [False, True])
def test_a_plan_for_other_micro_batches_than_its_profile(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch, with_option: bool
) -> None:
    monkeypatch.chdir(made)
    plan = penstock.load_plan("plan.json")
    other = msgspec.structs.replace(plan, micro_batch_size=3, order=None)
    assert penstock.load_profile("p.json").micro_batch_size != 3
    penstock.save_plan(other, "other.json")
    done = run("simulate", "other.json", *(("--profile", "p.json") if with_option else ()), "-q")
    assert done.code == 0, done.err
