"""Playing a scenario: an emulated run that adapts to slow devices and links, and goes on when devices are lost.

The ranks run until a device is lost, one comes back, or all steps are done. Then they are started again with a plan for
the devices that are left, from the step that was saved last. Changes of plans for other speeds need no restart.
"""

from msgspec.structs import replace

from penstock.adaptation import Speeds, with_speeds
from penstock.cluster import Cluster
from penstock.emulation import Emulation
from penstock.launch.scenarios.generation import Generation
from penstock.launch.scenarios.play import AdaptOptions, Log, PlanChange, Play, ScenarioRun
from penstock.plan import Plan
from penstock.units import show_count, show_seconds


def play_scenario(emulation: Emulation, options: AdaptOptions, log: Log) -> ScenarioRun:
    """Play the scenario of an emulation.

    Args:
        emulation: The plan, the profile, the cluster, and the scenario.
        options: How to adapt.
        log: Receives what happens and every decision, in sentences.
    """
    assert emulation.scenario is not None, "the command checks this"
    play = Play(emulation, emulation.scenario, options, log)
    num_steps, step, resumed_s = emulation.scenario.num_steps, 0, -1.0
    plan: Plan = emulation.plan
    believed: Cluster | None = None
    while True:
        generation = Generation(
            play,
            replace(
                emulation,
                cluster=play.part,
                plan=plan,
                believed=believed,
                num_steps=num_steps,
                first_step=step,
                began_s=play.began_s,
                resumed_s=resumed_s,
            ),
        )
        step = generation.run()
        if play.result.failure is not None or play.result.was_stopped or step >= num_steps:
            return play.result
        resumed_s = play.now_s
        plan, believed = _plan_what_is_left(play, generation.why, step)


def _plan_what_is_left(play: Play, why: str, step: int) -> tuple[Plan, Cluster]:
    """Plan for the devices that are left, with the speeds that were estimated."""
    part, began_s = play.part, play.now_s
    names = {device.name for device in part.devices}
    speeds = Speeds(
        {name: speed for name, speed in play.speeds.devices.items() if name in names},
        {link: speed for link, speed in play.speeds.links.items() if set(link) <= names},
    )
    known = [plan for plan in play.plans if set(plan.devices) <= names]
    found = play.replan(with_speeds(part, speeds), known)
    play.plans.append(found.costs.plan)
    expected_s = found.timeline.iteration_s
    play.log(
        f"{why}: going on from step {step} with a plan for {show_count(len(names), 'device')}, expected iteration time "
        f"{show_seconds(expected_s)}"
    )
    play.result.changes.append(PlanChange(step, why, play.now_s - began_s, expected_s))
    return found.costs.plan, found.costs.cluster
