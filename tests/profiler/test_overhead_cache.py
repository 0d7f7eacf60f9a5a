"""The measured overhead of the runtime is kept for each machine, and only if it is good."""

import logging
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

import penstock
from penstock.profiler import overhead_cache
from penstock.profiler.overhead_cache import KeptOverhead, cache_path, find_overhead, this_machine
from penstock.profiler.runtime_overhead import Costs, MeasuredOverhead

STEADY = MeasuredOverhead(Costs(3e-5, 2e-5, 1e-10), is_steady=True)
UNSTEADY = MeasuredOverhead(Costs(4e-4, 3e-4, 1e-9), is_steady=False)


class Measurements:
    """Stands in for the processes, which take seconds, and counts the measurements."""

    def __init__(self, result: MeasuredOverhead) -> None:
        self.result = result
        self.num = 0

    def __call__(self, _: int) -> MeasuredOverhead:
        self.num += 1
        return self.result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _forget(monkeypatch)
    return tmp_path / "penstock"


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(overhead_cache, "_in_process", {})


def _use(monkeypatch: pytest.MonkeyPatch, result: MeasuredOverhead = STEADY) -> Measurements:
    measurements = Measurements(result)
    monkeypatch.setattr(overhead_cache, "measure_overhead", measurements)
    return measurements


def test_a_result_is_kept_for_later_processes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measurements = _use(monkeypatch)
    first = find_overhead(1)
    assert find_overhead(1) is first
    _forget(monkeypatch)
    assert find_overhead(1) == first
    assert measurements.num == 1
    (file,) = folder.iterdir()
    assert file == cache_path(this_machine(1))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert find_overhead(2).machine.num_threads == 2
    assert measurements.num == 2
    measurements.result = MeasuredOverhead(Costs(5e-5, 2e-5, 1e-10), is_steady=True)
    assert find_overhead(1, remeasure=True).measured == measurements.result
    _forget(monkeypatch)
    assert find_overhead(1).measured == measurements.result
    assert measurements.num == 3


def test_bounds_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measurements = _use(monkeypatch, UNSTEADY)
    assert find_overhead(1).measured == UNSTEADY
    assert find_overhead(1).measured == UNSTEADY
    assert measurements.num == 2
    assert not folder.exists()


def _kept(**changes: object) -> bytes:
    kept = KeptOverhead(this_machine(1), "2026-01-02", STEADY)
    return msgspec.json.encode(msgspec.structs.replace(kept, **changes))


@pytest.mark.parametrize(
    "content",
    [
        lambda: b"",
        lambda: b"{",
        lambda: b"\xff\x00",
        lambda: b"[]",
        lambda: _kept()[:-20],
        lambda: _kept(measured=MeasuredOverhead(Costs(0.0, 2e-5, 1e-10), is_steady=True)),
        lambda: _kept(measured=MeasuredOverhead(Costs(-3e-5, 2e-5, 1e-10), is_steady=True)),
        lambda: _kept(measured=MeasuredOverhead(Costs(3e-5, 1e300, 1e-10), is_steady=True)),
        lambda: _kept(measured=MeasuredOverhead(Costs(float("nan"), 2e-5, 1e-10), is_steady=True)),
        lambda: _kept().replace(b"job_s", b"job"),
        lambda: _kept(machine=this_machine(2)),
        lambda: _kept(measured=UNSTEADY),
    ],
)
def test_a_damaged_file_is_measured_again(
    content: Callable[[], bytes], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurements = _use(monkeypatch)
    folder.mkdir(parents=True)
    path = cache_path(this_machine(1))
    path.write_bytes(content())
    found = find_overhead(1)
    assert measurements.num == 1
    assert found.date != "2026-01-02"
    assert msgspec.json.decode(path.read_bytes(), type=KeptOverhead) == found


def test_a_good_file_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measurements = _use(monkeypatch)
    folder.mkdir(parents=True)
    cache_path(this_machine(1)).write_bytes(_kept())
    assert find_overhead(1).date == "2026-01-02"
    assert measurements.num == 0


@pytest.mark.parametrize("obstacle", ["file", "folder"])
def test_without_a_writable_directory_it_is_kept_in_the_process(
    obstacle: str, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if obstacle == "file":
        folder.write_bytes(b"")  # root, too, cannot create a folder below a file
    else:
        cache_path(this_machine(1)).mkdir(parents=True)
    measurements = _use(monkeypatch)
    with caplog.at_level(logging.INFO, logger="penstock"):
        first = find_overhead(1)
    assert find_overhead(1) is first
    assert measurements.num == 1
    assert "the runtime overhead is not kept" in caplog.text


def test_the_directory_follows_the_xdg_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_path(this_machine(1)).parent == tmp_path / ".cache" / "penstock"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_path(this_machine(1)).parent == tmp_path / ".cache" / "penstock"


def test_everything_that_matters_is_part_of_the_name() -> None:
    machine = this_machine(1)
    assert machine.torch == str(torch.__version__)
    others = {"host": "x", "cpu": "x", "num_cores": 99, "num_threads": 7, "torch": "x", "runtime": "x"}
    paths = {cache_path(msgspec.structs.replace(machine, **{name: value})) for name, value in others.items()}
    assert len(paths | {cache_path(machine)}) == len(others) + 1
    assert set(others) == set(machine.__struct_fields__)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (STEADY, ("Measured overhead", "30.0 us per action", "--remeasure-overheads measures again")),
        (UNSTEADY, ("Upper bounds of the overhead", "400 us per action", "too busy")),
    ],
)
def test_the_profile_states_where_its_overhead_is_from(
    result: MeasuredOverhead, words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, result)
    assert folder.parent.is_dir()
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    profile = penstock.profile(model, torch.randn(4, 4), lambda out: out.square().mean(), seconds=0)
    assert [spent.kind for spent in profile.overheads] == list(profile.kinds)
    assert profile.overheads[0].job_s == result.costs.job_s
    (text,) = (text for text in profile.assumptions if "overhead" in text)
    for word in words:
        assert word in text
