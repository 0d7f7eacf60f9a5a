"""Scenario files: what they say, and one clear error for everything else."""

from pathlib import Path

import pytest

from penstock.cluster import load_cluster
from penstock.emulation.scenario import load_scenario
from penstock.errors import InputError

CLUSTER = load_cluster("2 x 2 x T4 @ 10 GB/s / 1 GB/s")

WHOLE = """
steps = 300
noise = "3 %"
save-every = 10

[[event]]
at = "90s"
kill = "h0.d1"

[[event]]
at = "30s"
slow = "h0.d0=2x"

[[event]]
at = "1 min"
slow = "h0.d0=1x"

[[event]]
at = "40s"
link = "h0-h1=0.1x"

[[event]]
at = "100s"
back = "h0.d1"
"""


def test_a_scenario_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(WHOLE)
    scenario = load_scenario(tmp_path / "s.toml", CLUSTER)
    assert (scenario.num_steps, scenario.noise, scenario.save_every) == (300, 0.03, 10)
    assert [item.what for item in scenario.events] == ["slow", "link", "slow", "kill", "back"]
    assert [scenario.slowness("h0.d0", at_s) for at_s in (0.0, 30.0, 59.0, 60.0)] == [1.0, 2.0, 2.0, 1.0]
    assert scenario.slowness("h1.d0", 45.0) == 1.0
    (fault,) = scenario.link_faults([device.name for device in CLUSTER.devices])
    assert (fault.at_s, fault.factor, len(fault.links)) == (40.0, 0.1, 8)
    # After h0.d1 is lost, only links between the others change.
    (fault,) = scenario.link_faults(["h0.d0", "h1.d0", "h1.d1"])
    assert len(fault.links) == 4
    assert [item.sentence for item in scenario.of("kill", "back")] == [
        "the process of h0.d1 is killed",
        "h0.d1 can be used again",
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("steps = ", "not valid TOML"),
        ("noise = 0.1", "steps must be a whole number"),
        ("steps = 1", "steps must be a whole number from 2"),
        ("steps = 5\nnoise = 'much'", "noise must be a share"),
        ("steps = 5\nsaves = 1", "unknown key 'saves'"),
        ("steps = 5\nevent = 3", "events must be tables"),
        ("steps = 5\n[[event]]\nat = '1s'", "one thing"),
        ("steps = 5\n[[event]]\nat = '1s'\nkill = 'h0.d0'\nhang = 'h0.d1'", "one thing"),
        ("steps = 5\n[[event]]\nat = 1\nkill = 'h0.d0'", "must be strings"),
        ("steps = 5\n[[event]]\nat = 'soon'\nkill = 'h0.d0'", "soon"),
        ("steps = 5\n[[event]]\nat = '1s'\nkill = 'x'", "'x' is not a device"),
        ("steps = 5\n[[event]]\nat = '1s'\nslow = 'h0.d0'", "the factor is missing"),
        ("steps = 5\n[[event]]\nat = '1s'\nlink = 'h0-h1=0.1x@3s'", "key at"),
        ("steps = 5\n[[event]]\nat = '1s'\nback = 'h0.d0'", "it was not lost"),
        (
            "steps = 5\n[[event]]\nat = '1s'\nkill = 'h0.d0'\n[[event]]\nat = '2s'\nhang = 'h0.d0'",
            "lost twice",
        ),
    ],
)
def test_anything_else_is_one_clear_error(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_scenario(tmp_path / "s.toml", CLUSTER)
    assert what in caught.value.what
    assert "s.toml" in caught.value.where
