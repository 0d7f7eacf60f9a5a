"""penstock emulate, with real ranks in real namespaces."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

import penstock
from penstock.cluster.toml.writer import write_cluster
from penstock.emulation.faults import Faults, KilledRank, LinkFault, SlowDevice
from penstock.emulation.spec import Emulation
from penstock.launch.emulation import emulate
from penstock.program.actions import Kind
from penstock.report.analysis.prediction.compare import compare_timelines, difference_sentences
from tests.support.small_emulation import needs_shaping, small
from tests.support.undisturbed import must, undisturbed

SCRIPT = """
import torch
from torch import nn

def make_model():
    model = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 1024))
    return model, torch.ones(4, 1024), lambda output, targets: (output - targets).square().mean(), torch.ones(4, 1024)
"""

Run = Callable[..., "tuple[int, str, str]"]


def changed(emulation: Emulation, **changes: object) -> Emulation:
    return msgspec.structs.replace(emulation, **changes)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The small emulation's plan as a file, with the files that it is for."""
    folder, made = tmp_path_factory.mktemp("emulate"), small()
    penstock.save_profile(made.profile, folder / "profile.json")
    (folder / "cluster.toml").write_text(write_cluster(made.cluster))
    penstock.save_plan(made.plan, folder / "plan.json")
    return str(folder / "plan.json")


def words(plan: str, *more: str) -> list[str]:
    folder = Path(plan).parent
    profile, cluster = str(folder / "profile.json"), str(folder / "cluster.toml")
    return ["emulate", plan, "--profile", profile, "--cluster", cluster, *more]


@needs_shaping
@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
@undisturbed
def test_it_takes_as_long_as_predicted(schedule: str) -> None:
    emulation = small(schedule)
    found = emulate(changed(emulation, slow_down=1.5))
    must(found.failure is None, found.log)
    predicted = emulation.evaluation.timeline
    assert len(found.timelines) == 2
    for measured in found.timelines:
        assert measured.iteration_s == pytest.approx(predicted.iteration_s, rel=0.1)
        # Every job takes as long as it should, and the moved parameters have come back.
        for kind in (Kind.F, Kind.R, Kind.I, Kind.B):
            rows = np.flatnonzero(measured.program.kind == kind)
            taken = (measured.end_s - measured.start_s)[rows].sum()
            assert taken == pytest.approx((predicted.end_s - predicted.start_s)[rows].sum(), rel=0.1)
        back = np.flatnonzero(measured.program.kind == Kind.RECV_P)
        assert len(back)
        assert (measured.end_s - measured.start_s)[back].min() > 0


@needs_shaping
def test_what_people_see(run: Run, plan: str, tmp_path: Path) -> None:
    output = tmp_path / "timeline.json"
    code, out, err = run(*words(plan, "--steps", "2", "-o", str(output)))
    assert code == 0, err
    assert "emulating 4 devices of pairs" in out
    assert "step 0 (1 of 2): " in out
    assert "(warming up)" in out
    assert "forward of stage 1" in out
    assert "An iteration was predicted to take " in out
    assert penstock.load_timeline(output).origin == "measured"
    # What comes next can be done: it is a command that works as it stands.
    folder = Path(plan).parent
    sources = f"--profile {folder / 'profile.json'} --cluster {folder / 'cluster.toml'}"
    assert out.rstrip().splitlines()[-1] == f"next: penstock report {output} {sources}"
    code, _, err = run("report", str(output), *sources.split(), "-o", str(tmp_path / "page.html"))
    assert code == 0, err


@needs_shaping
@undisturbed
def test_a_slow_device_and_a_bad_link() -> None:
    emulation = small()
    predicted_s = emulation.evaluation.timeline.iteration_s
    links = (("d1", "d2"), ("d2", "d1"))
    slowed = emulate(changed(emulation, num_steps=2, faults=Faults(slowed=(SlowDevice("d1", 3.0),))))
    broken = emulate(changed(emulation, num_steps=2, faults=Faults(links=(LinkFault(links, 0.2),))))
    must(slowed.failure is None, slowed.log)
    must(broken.failure is None, broken.log)
    # Of the two replicas d0 and d1, and of all links, those are named that were slow.
    told = difference_sentences(compare_timelines(emulation.evaluation.timeline, slowed.timelines))
    assert re.match(r"d1 was slow: its actions took (2\.9|3\.0|3\.1)\d times as long as predicted", told[1])
    assert len(told) == 2
    told = difference_sentences(compare_timelines(emulation.evaluation.timeline, broken.timelines))
    assert told[1].startswith("The link from d1 to d2 was slow: a message took ")
    # d1 alone has 4 x (20 + 20) ms and a step of 10 ms to do, three times as long; it is not alone.
    assert slowed.timelines[0].iteration_s > max(3 * 0.17, 1.1 * predicted_s)
    # 4 x 0.2 MB go over the link in each direction, at 2 MB/s.
    assert broken.timelines[0].iteration_s > max(0.4, 1.1 * predicted_s)


@needs_shaping
@undisturbed
def test_what_is_measured_is_after_the_faults(run: Run, plan: str) -> None:
    # Steps of about half a second: the link is slow for all of steps 2 and 3.
    late = ("--link", "d1-d2=0.1x@0.8s", "--link", "a-b=0.5x@1min")
    code, out, err = run(*words(plan, "--slow-down", "1", "--steps", "4", *late))
    must(code == 0, err)
    assert "links between d1 and d2 had 0.1 times the bandwidth from step 1 on (--link)" in out
    assert "measured times are those of steps 2 to 3, after all faults" in out
    assert "links between a and b did not change: the run ended before second 60" in err
    assert out.rstrip().splitlines()[-1].startswith("next: repeat with -o measured.json, then `penstock report ")


@needs_shaping
def test_a_rank_that_dies_is_named() -> None:
    found = emulate(changed(small(), faults=Faults(killed=(KilledRank(2, 1),))))
    told = str(found.failure)
    assert told.startswith(
        "rank 2 (d2) was killed at the start of step 1, as requested by --kill 2@1; all ranks were stopped"
    )
    assert "memory" not in told
    # The table has the same step.
    assert "Last status of each rank:" in told
    assert re.search(r"^ +2 +d2 +1 +between steps ", told, re.MULTILINE)
    assert len(found.timelines) == 1
    # What there is warms up, and says nothing of this machine.
    assert found.is_warm_up
    assert found.timelines[0].is_warm_up
    assert found.limits == ()


@needs_shaping
def test_nothing_is_left_when_it_is_killed(plan: str) -> None:
    command = [sys.executable, "-c", "from penstock.cli.main import main; main()", *words(plan, "--steps", "1000")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        while "step 0" not in process.stdout.readline():
            assert process.poll() is None
        ranks = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
    assert len(ranks) == 2 + 4  # the keeper, the first of its namespace, and four ranks
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in ranks) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in ranks if Path(f"/proc/{pid}").exists()] == []


def descendants(pid: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *descendants(int(child))]
    return found


@needs_shaping
def test_devices_can_compute(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(SCRIPT)
    units = tuple(
        penstock.Unit(
            name=str(number),
            parameter_bytes=4_198_400,
            sizes=(penstock.Sizes(micro_batch_size=4, cut_bytes=16_384, saved_bytes=16_384),),
            times=(
                penstock.Times(
                    kind="X", micro_batch_size=4, forward_s=1e-3, input_grad_s=1e-3, weight_grad_s=1e-3, step_s=1e-3
                ),
            ),
        )
        for number in range(2)
    )
    profile = penstock.Profile(name="two", micro_batch_size=4, units=units, input_bytes=16_384)
    cluster = penstock.load_cluster("2 x 1 x X @ 1 GB/s / 1 MB/s")
    made = penstock.plan(profile, cluster, 2, planner="balanced", schedule="gpipe")
    penstock.save_profile(profile, tmp_path / "profile.json")
    (tmp_path / "cluster.toml").write_text(write_cluster(cluster))
    penstock.save_plan(made, tmp_path / "plan.json")
    more = ("--compute", str(script), "--steps", "2", "--json")
    code, out, err = run(*words(str(tmp_path / "plan.json"), *more))
    assert code == 0, err
    found = json.loads(out)
    # Two micro-batches of 16 kB each way, one after the other, over 1 MB/s.
    assert found["measured_s"][0] > 2 * 0.016
    assert "devices computed, with one thread each; links had no latency" in found["notes"]


def test_without_shaping_it_needs_nothing(run: Run, plan: str) -> None:
    code, out, err = run(*words(plan, "--no-shaping", "--slow-down", "1", "--steps", "1", "--json"))
    assert code == 0, err
    assert "probably needs" not in err
    found = json.loads(out)
    assert found["notes"] == ["links were not shaped and had no latency: only device times correspond to the cluster"]
    assert found["comparison"]["words"][0].startswith("Only the first iteration was measured, and it includes warm-up")
    assert len(found["comparison"]["words"]) == 1
    # The longest chain of jobs: its forwards and backwards take no less without links.
    assert found["measured_s"][0] > 4 * 0.06
    assert found["slow_down"] == 1.0
    assert found["error"] is None


def test_one_step_only_warms_up(run: Run, plan: str, tmp_path: Path) -> None:
    output = tmp_path / "one.json"
    code, out, err = run(*words(plan, "--no-shaping", "--steps", "1", "-o", str(output)))
    assert code == 0, err
    assert "(warming up)" in out
    assert "one iteration was measured" not in out
    assert "only step 0, a warm-up, was measured: the written timeline is not representative" in err
    assert out.rstrip().splitlines()[-1] == "next: repeat with --steps 3: step 0 is only a warm-up"
    # The file knows it too.
    assert penstock.load_timeline(output).is_warm_up


def test_what_the_runtime_takes_is_not_missing_from_jobs() -> None:
    (measured,) = emulate(changed(small(), is_shaped=False, num_steps=2)).timelines
    program = measured.program
    first = (program.kind == Kind.F) & (program.stage == 0) & (program.device_of == program.devices.index("d0"))
    one, other = (int(np.flatnonzero(first & (program.microbatch == number))[0]) for number in (0, 1))
    # They wait for nothing: between them is only what the runtime does.
    assert measured.start_s[other] == measured.end_s[one]


def test_a_pace_that_is_too_quick_is_warned_of(run: Run, plan: str) -> None:
    code, _, err = run(*words(plan, "--no-shaping", "--slow-down", "0.01", "--steps", "1"))
    assert code == 0, err
    assert "this machine probably needs --slow-down " in err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--slow-down", "0"), "'0' is not a positive number"),
        (("--slow-down", "fast"), "'fast' is not a positive number"),
        (("--slow", "d9=2x"), "'d9' is not a device of the plan"),
        (("--kill", "4@0"), "rank 4 does not exist"),
        (("--kill", "2@3"), "step 3 does not exist"),
        (("--link", "d0-d1=0.1x", "--no-shaping"), "--link cannot be used with --no-shaping"),
        (("--compute", "model.py", "--slow-down", "2"), "--compute cannot be used with --slow-down"),
        (("--compute", "there-is-none.py"), "there-is-none.py"),
        (("--steps", "0"), "Invalid value for '--steps'"),
    ],
)
def test_bad_input(run: Run, plan: str, more: tuple[str, ...], said: str) -> None:
    code, _, err = run(*words(plan, *more))
    assert code == 2
    assert said in err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up being root")
def test_without_tools_it_says_what_it_needs(run: Run, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.emulation.network.namespaces._path", lambda: "")
    code, _, err = run(*words(plan))
    assert code == 2
    assert "shaped links need ip and tc" in err
    assert "--no-shaping" in err
