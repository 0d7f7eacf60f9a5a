"""A scenario on four emulated devices over loopback: one slows down, another one is lost and comes back."""

import pytest
from msgspec.structs import replace

from penstock.emulation import Happening, Scenario
from penstock.launch import AdaptOptions, play_scenario
from penstock.planners.api import solve
from tests.support.small_emulation import small

pytest.importorskip("torch")


def test_a_run_adapts_and_survives_a_loss() -> None:
    emulation = small()
    plan = solve(emulation.profile, emulation.cluster, 4, work=20).plan
    scenario = Scenario(
        num_steps=60,
        save_every=4,
        events=(
            Happening(at_s=1.0, what="slow", device=plan.devices[0], factor=4.0),
            Happening(at_s=9.0, what="kill", device=plan.devices[1]),
            Happening(at_s=9.5, what="back", device=plan.devices[1]),
        ),
    )
    emulation = replace(emulation, plan=plan, scenario=scenario, num_steps=60, is_shaped=False, timeout_s=30.0)
    log: list[str] = []
    run = play_scenario(emulation, AdaptOptions("on", work=20), log.append)
    text = "\n".join(log)
    assert run.failure is None, run.failure
    assert {item.step for item in run.steps} == set(range(60))
    why = [change.why for change in run.changes]
    assert any("was lost" in item for item in why), text
    assert any("came back" in item for item in why), text
    assert run.steps_lost < 4
    switch = next((change for change in run.changes if change.why == "other speeds"), None)
    assert switch is not None, text
    assert any(item.decision.switch for item in run.decisions)
    assert f"{plan.devices[0]} takes" in text
