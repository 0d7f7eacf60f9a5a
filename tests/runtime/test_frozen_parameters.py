"""Training of adapters: frozen parameters have no gradients and no optimizer state, in training and in plans."""

import warnings
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

import penstock
from penstock.cluster.types import Cluster
from penstock.plan.types import Plan
from penstock.profiler.measurement import measure
from tests.support.runtime.lora import ROWS, batch, make_model, train, train_alone
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of

torch.set_num_threads(1)
ADAPTERS = {"3.a", "3.b", "5.a", "5.b"}

PLANS = {
    "frozen first stage": plan_of([0, 3, 8], [["d0"], ["d1"]]),
    "frozen last stage": plan_of([0, 6, 8], [["d0"], ["d1"]]),
    "adapters on both": plan_of([0, 4, 8], [["d0"], ["d1"]]),
    "split backward": plan_of([0, 2, 4, 6, 8], [["d0"], ["d1"], ["d0"], ["d1"]], schedule="zb_h1"),
    "replicas": plan_of([0, 3, 8], [["d0", "d1"], ["d1", "d0"]]),
    "recompute": plan_of([0, 3, 8], [["d0"], ["d1"]], recompute=True),
    "remote backward": plan_of([0, 3, 5, 8], [["d0"], ["d0"], ["d1"]], backward=[["d1"], ["d1"], ["d0"]]),
}


@pytest.mark.parametrize("name", list(PLANS))
def test_the_numbers_of_a_single_process(rank_pool: RankPool, tmp_path: Path, name: str) -> None:
    alone = train_alone()
    ranks = rank_pool.run(2, train, PLANS[name], str(tmp_path))
    resumed = rank_pool.run(2, train, PLANS[name], str(tmp_path), True)
    for held, again in zip(ranks, resumed, strict=True):
        assert all(torch.allclose(one, other, rtol=1e-4) for one, other in zip(held.losses, alone.losses, strict=True))
        assert all(torch.allclose(item, alone.adapters[key], atol=1e-5) for key, item in held.adapters.items())
        assert held.states == len(held.adapters)
        assert set(held.grads) == set(held.adapters)
        assert all(map(torch.equal, again.losses, held.losses[-len(again.losses) :]))
        assert all(torch.equal(item, again.adapters[key]) for key, item in held.adapters.items())
    assert {key for held in ranks for key in held.adapters} == ADAPTERS


def test_a_stage_without_trained_parameters_has_an_optimizer(rank_pool: RankPool, tmp_path: Path) -> None:
    first, last = rank_pool.run(2, train, PLANS["frozen first stage"], str(tmp_path))
    assert (first.adapters, first.states) == ({}, 0)
    assert last.adapters.keys() == ADAPTERS
    # The checkpoint loads under another plan.
    ranks = rank_pool.run(2, train, PLANS["frozen last stage"], str(tmp_path), True)
    assert [set(held.adapters) for held in ranks] == [ADAPTERS, set()]
    assert all(torch.allclose(item, last.adapters[key], atol=1e-6) for key, item in ranks[0].adapters.items())


def profile_of_adapters() -> penstock.Profile:
    inputs, targets = batch(0)
    return measure(make_model(), inputs, nn.functional.mse_loss, targets=targets, seconds=0.1, micro_batch_sizes=[ROWS])


def test_a_profile_holds_trained_parameters_apart() -> None:
    profile = profile_of_adapters()
    linear = (8 * 8 + 8) * 4
    adapter = 2 * 2 * 8 * 4
    assert [unit.trained_bytes for unit in profile.units] == [0, 0, 0, adapter, 0, adapter, 0, 0]
    assert profile.units[3].parameter_bytes == linear + adapter
    assert profile.largest_parameter_bytes == (0, 0, 0, adapter // 2, 0, adapter // 2, 0, 0)
    times = [unit.times[0] for unit in profile.units]
    # No gradient goes through the frozen layers in front of the first adapter. The runtime defers the gradients of the
    # adapters, and only these.
    assert [time.input_grad_s > 0 for time in times] == [False] * 3 + [True] * 5
    assert [time.weight_grad_s > 0 for time in times] == [False] * 3 + [True, False, True, False, False]
    assert [time.step_s > 0 for time in times] == [False] * 3 + [True, False, True, False, False]


def two_devices() -> Cluster:
    return penstock.load_cluster("2 x A100-80 @ 10 GB/s")


def priced(profile: penstock.Profile, cuts: list[int], groups: list[list[str]]) -> penstock.Costs:
    cluster = two_devices()
    plan: Plan = msgspec.structs.replace(plan_of(cuts, groups), micro_batch_size=ROWS)
    return penstock.price(plan, profile, cluster, strict=False)


def test_prices_without_gradients_of_frozen_parameters() -> None:
    profile = profile_of_adapters()
    names = [device.name for device in two_devices().devices]
    total = sum(unit.parameter_bytes for unit in profile.units)
    trained = sum(unit.trained_bytes for unit in profile.units)
    costs = priced(profile, [0, 3, 8], [[names[0]], [names[1]]])
    assert costs.weight_bytes.sum() == total
    assert costs.gradient_bytes.tolist() == [0, trained]
    assert costs.optimizer_bytes.tolist() == [0, 2 * trained]
    # Gradients of the cut at layer 3 exist for no one: nothing in front of it is trained.
    assert dict(zip(costs.flows.what.tolist(), costs.flows.num_bytes.tolist(), strict=True)) == {0: ROWS * 8 * 4, 1: 0}
    assert priced(profile, [0, 4, 8], [[names[0]], [names[1]]]).flows.num_bytes.tolist() == [ROWS * 8 * 4] * 2
    replicated = priced(profile, [0, 8], [names])
    (reduction,) = replicated.reductions
    assert reduction.ring.sent_bytes == trained
    assert replicated.gradient_bytes.tolist() == [trained, trained]


def test_the_file_of_a_profile_without_frozen_parameters_is_unchanged(tmp_path: Path) -> None:
    profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=1, sequence=8)
    penstock.save_profile(profile, tmp_path / "a.json")
    assert "trained" not in (tmp_path / "a.json").read_text()
    frozen = profile_of_adapters()
    penstock.save_profile(frozen, tmp_path / "b.json")
    again = penstock.load_profile(str(tmp_path / "b.json"))
    assert (again, again.digest) == (frozen, frozen.digest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trained_parameter_bytes": 10_000}, "trained parameters of layer '3' are larger than all"),
        ({"trained_parameter_bytes": 0}, "largest trained parameter of layer '3'"),
    ],
)
def test_contradictions_are_refused(change: dict[str, int], message: str) -> None:
    profile = profile_of_adapters()

    def changed() -> penstock.Profile:
        unit = msgspec.structs.replace(profile.units[3], **change)
        return msgspec.structs.replace(profile, units=(*profile.units[:3], unit, *profile.units[4:]))

    with pytest.raises(ValueError, match=message):
        changed()


def test_ties_are_trained_or_frozen() -> None:
    profile = msgspec.structs.replace(profile_of_adapters(), largest_parameter_bytes=())
    trained = penstock.Tie(name="t", parameter_bytes=64, units=(0, 3))
    with pytest.raises(ValueError, match="trained ties of layer '0' are larger than its trained"):
        msgspec.structs.replace(profile, ties=(trained,))
    frozen = msgspec.structs.replace(trained, units=(3, 5), parameter_bytes=400, is_trained=False)
    with pytest.raises(ValueError, match="frozen ties of layer '3' are larger than its frozen"):
        msgspec.structs.replace(profile, ties=(frozen,))


def test_a_profile_of_other_trained_parameters_is_noticed(rank_pool: RankPool) -> None:
    profile = profile_of_adapters()
    units = tuple(msgspec.structs.replace(unit, trained_parameter_bytes=None) for unit in profile.units)
    whole = msgspec.structs.replace(profile, units=units)
    cluster = two_devices()
    plan = penstock.plan(whole, cluster, 2, planner="uniform", schedule="1f1b")
    (warned,), others = rank_pool.run(2, warnings_of, plan, whole)
    assert "the trained parameters of layer '0' take 0 B, but those of '0' take 224 B in the profile" in warned
    assert others == []


def warnings_of(plan: Plan, profile: penstock.Profile) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(plan, profile=profile, cluster=two_devices(), device="cpu")
    return [str(item.message) for item in caught if item.category is penstock.ProfileWarning]
