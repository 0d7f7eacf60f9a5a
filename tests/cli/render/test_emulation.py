"""Remarks on an emulation: faults, and what the measured times include."""

import pytest

from penstock.cli.console import Console
from penstock.cli.render.emulation import emulation_notes, next_command, show_emulation
from penstock.emulation.faults import Faults, LinkFault, SlowDevice
from penstock.emulation.spec import Emulation
from penstock.launch.emulation import EmulationRun
from penstock.plan.types import Stage, on
from tests.support.small import equal_profile, hand_plan, one_host

LINKS = (
    LinkFault(links=(("d0", "d1"),), factor=0.5, at_s=3.0, ends=("d0", "d1")),
    LinkFault(links=(("d1", "d0"),), factor=0.1, at_s=9.0, ends=("d1", "d0")),
)
SLOW = SlowDevice(device="d1", factor=2.0)


def emulated(**options: object) -> Emulation:
    profile, cluster = equal_profile(1), one_host(2)
    plan = hand_plan(profile, cluster, [Stage(start=0, stop=1, forward=on("d0"), backward=on("d0"))])
    return Emulation(plan=plan, profile=profile, cluster=cluster, **options)  # type: ignore[arg-type]


def run_of(changed: dict[int, int], *steps: int) -> EmulationRun:
    return EmulationRun((), steps, changed, (), False, None, "")


@pytest.mark.parametrize(
    ("faults", "run", "notes"),
    [
        (Faults(), run_of({}, 1, 2), []),
        (
            Faults(slowed=(SLOW,)),
            run_of({}, 1),
            ["d1 took 2 times as long (--slow)", "the prediction excludes these faults"],
        ),
        # Links that change at once, with the first step, do not shorten what is measured.
        (
            Faults(links=LINKS[:1]),
            run_of({0: 0}, 1, 2),
            [
                "links between d0 and d1 had 0.5 times the bandwidth from step 0 on (--link)",
                "the prediction excludes these faults",
            ],
        ),
        (
            Faults(links=LINKS),
            run_of({1: 2, 0: 0}, 3),
            [
                "links between d0 and d1 had 0.5 times the bandwidth from step 0 on (--link)",
                "links between d1 and d0 had 0.1 times the bandwidth from step 2 on (--link)",
                "the prediction excludes these faults",
                "measured times are those of step 3, after all faults",
            ],
        ),
        (
            Faults(links=LINKS[:1]),
            run_of({0: 1}, 2, 3, 4),
            [
                "links between d0 and d1 had 0.5 times the bandwidth from step 1 on (--link)",
                "the prediction excludes these faults",
                "measured times are those of steps 2 to 4, after all faults",
            ],
        ),
        (
            Faults(links=LINKS[:1]),
            run_of({0: 1}),
            [
                "links between d0 and d1 had 0.5 times the bandwidth from step 1 on (--link)",
                "the prediction excludes these faults",
            ],
        ),
    ],
)
def test_notes_on_faults(faults: Faults, run: EmulationRun, notes: list[str]) -> None:
    assert emulation_notes(emulated(faults=faults), run) == notes


def test_notes_on_links_and_scripts() -> None:
    not_shaped = "links were not shaped and had no latency: only device times correspond to the cluster"
    script = "devices computed, with one thread each; links had no latency"
    assert emulation_notes(emulated(is_shaped=False), run_of({}, 1)) == [not_shaped]
    assert emulation_notes(emulated(script="m.py"), run_of({}, 1)) == [script]


def test_faults_that_were_due_later_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    # Two micro-batches of three seconds: an iteration of 6 s.
    show_emulation(Console(), emulated(faults=Faults(links=LINKS)), run_of({0: 1}, 2))
    err = " ".join(capsys.readouterr().err.split())
    assert "links between d1 and d0 did not change: the run ended before second 9 of the cluster's time" in err
    assert "(predicted iteration time: 6.00 s)" in err
    assert "links between d0 and d1" not in err
    stopped = EmulationRun((), (), {}, (), True, None, "")
    show_emulation(Console(), emulated(faults=Faults(links=LINKS)), stopped)
    assert "did not change" not in capsys.readouterr().err


def test_the_command_that_shows_both_timelines() -> None:
    assert next_command("a b.json", "p.json", None) == "penstock report 'a b.json' --profile p.json"
    assert next_command("m.json", None, "c.toml") == "penstock report m.json --cluster c.toml"
    assert next_command(None, "p.json", None).startswith("repeat with -o measured.json")
