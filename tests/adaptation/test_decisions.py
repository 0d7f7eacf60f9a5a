"""Runs with noise: a healthy one never changes its plan, and one with a lasting slowdown does soon, to a good plan."""

from functools import cache

from hypothesis import Phase, given
from hypothesis import strategies as st

from penstock.adaptation import evaluate_on
from penstock.cluster import Cluster, load_cluster
from penstock.plan import Plan
from penstock.planners.api import solve
from penstock.profile import Profile, Sizes, Times, Unit
from tests.support.reach import reach, reaches
from tests.support.simulated_run import SimulatedRun, Slowness, planned_for, slowed
from tests.support.thoroughness import examples

BEGIN = 10
WITHIN = 20


@cache
def subject() -> tuple[Profile, Cluster, Plan]:
    """Twelve equal layers on two hosts of two devices."""
    times = Times(kind="X", micro_batch_size=4, forward_s=0.01, input_grad_s=0.01, weight_grad_s=0.01, step_s=0.001)
    sizes = Sizes(micro_batch_size=4, cut_bytes=1_000_000, saved_bytes=2_000_000)
    units = tuple(
        Unit(name=f"u{number}", parameter_bytes=4_000_000, sizes=(sizes,), times=(times,)) for number in range(12)
    )
    profile = Profile(name="equal layers", micro_batch_size=4, units=units)
    cluster = load_cluster("2 x 2 x X @ 2 GB/s / 1 GB/s")
    return profile, cluster, solve(profile, cluster, 8, work=20).plan


@reaches(noisy=0.5)
@examples(2)
@given(noise=st.sampled_from([0.0, 0.03, 0.05, 0.08]), seed=st.integers(0, 1000))
def test_a_healthy_run_never_changes_its_plan(noise: float, seed: int) -> None:
    profile, cluster, plan = subject()
    run = SimulatedRun(profile, cluster, plan, 200, noise=noise, seed=seed)
    decisions = [outcome.decision for outcome in run.run([])]
    assert run.switches == [], [decision.sentence for decision in decisions]
    reach("noisy", noise > 0)


@reaches(device=0.2, link=0.2)
@examples(5, phases=(Phase.explicit, Phase.generate))
@given(data=st.data())
def test_a_lasting_slowdown_changes_the_plan_soon(data: st.DataObject) -> None:
    profile, cluster, plan = subject()
    names = [device.name for device in cluster.devices]
    if data.draw(st.booleans(), label="device"):
        slow: Slowness = {data.draw(st.sampled_from(plan.devices)): data.draw(st.sampled_from([1.7, 2.0, 3.0]))}
    else:
        one, other = ("h0", "h1")
        pairs = [(a, b) for a in names for b in names if {a[:2], b[:2]} == {one, other}]
        factor = data.draw(st.sampled_from([30.0, 60.0]))
        slow = dict.fromkeys(pairs, factor)
    noise, seed = data.draw(st.sampled_from([0.0, 0.02, 0.04])), data.draw(st.integers(0, 1000))
    run = SimulatedRun(profile, cluster, plan, 1000, noise=noise, seed=seed)
    run.num_steps = BEGIN + WITHIN + 1
    decisions = [outcome.decision for outcome in run.run([(BEGIN, slow)])]
    truth = slowed(cluster, slow)
    before_s = evaluate_on(SimulatedRun(profile, cluster, plan, 1).adapter.running, profile, truth).timeline.iteration_s
    best_s = planned_for(profile, cluster, plan, slow).timeline.iteration_s
    after_s = evaluate_on(run.adapter.running, profile, truth).timeline.iteration_s
    is_worth_it = before_s > 1.15 * best_s
    if is_worth_it:
        assert run.switches, [decision.sentence for decision in decisions]
        assert BEGIN < run.switches[0] <= BEGIN + WITHIN
        assert after_s <= 1.05 * best_s, [decision.sentence for decision in decisions]
    reach("device", is_worth_it and any(isinstance(item, str) for item in slow))
    reach("link", is_worth_it and not any(isinstance(item, str) for item in slow))


def test_a_device_that_recovers_gets_its_work_back() -> None:
    profile, cluster, plan = subject()
    slow: Slowness = {plan.devices[0]: 3.0}
    run = SimulatedRun(profile, cluster, plan, 50)
    for _ in run.run([(BEGIN, slow), (30, {})]):
        pass
    assert [BEGIN < step <= 30 for step in run.switches] == [True, False]
    first = SimulatedRun(profile, cluster, plan, 1).adapter.running.timeline.iteration_s
    assert evaluate_on(run.adapter.running, profile, cluster).timeline.iteration_s <= 1.02 * first


def test_a_decision_states_its_numbers_and_why_not() -> None:
    profile, cluster, plan = subject()
    slow: Slowness = {plan.devices[0]: 2.0}
    run = SimulatedRun(profile, cluster, plan, 30)
    decisions = [outcome.decision for outcome in run.run([(BEGIN, slow)])]
    assert f"{plan.devices[0]} takes 2.00 x as long as declared" in decisions[0].sentence
    assert decisions[0].switch
    assert decisions[0].sentence.endswith("worth a change of plans")
    # With one step left nothing makes up for the change.
    late = SimulatedRun(profile, cluster, plan, BEGIN + 6, restart_s=10.0)
    refused = [outcome.decision for outcome in late.run([(BEGIN, slow)])]
    assert [decision.reason for decision in refused] == ["the steps left do not make up for the cost"]
    assert refused[0].sentence.endswith(f"not worth a change of plans: {refused[0].reason}")
    assert late.switches == []
