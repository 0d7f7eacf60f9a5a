"""Copies in memory: what is copied where, what counts as complete, and that training goes on from it."""

import random
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import torch
from hypothesis import given

from penstock.runtime.state.copies.choice import FoundPart, choose_copies
from penstock.runtime.state.copies.payload import Payload, read_payload
from penstock.runtime.state.copies.placement import place_copies
from penstock.runtime.state.copies.slots import Slot, read_slot
from tests.support.reach import reach, reaches
from tests.support.runtime.memory_copies import copy_then_train, go_on
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of

torch.set_num_threads(1)


@reaches(replicated=0.2, several_hosts=0.3)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.data())
def test_after_the_loss_of_any_host_every_entry_is_left(host_numbers: list[int], data: st.DataObject) -> None:
    hosts = [f"host {number}" for number in host_numbers]
    ranks = st.lists(st.integers(0, len(hosts) - 1), min_size=1, max_size=3, unique=True)
    holders = {name: data.draw(ranks) for name in "abcde"}
    plan = place_copies(holders, dict.fromkeys("abcde", 4), hosts)
    if any(plan.replicated):
        reach("replicated")
    kept: dict[str, set[str]] = {name: set() for name in holders}
    for rank, host in enumerate(hosts):
        assert not set(plan.single[rank]) & set(plan.replicated[rank])
        for name in (*plan.single[rank], *plan.replicated[rank]):
            assert rank in holders[name]
            kept[name].add(host)
        keeper = plan.keepers[rank]
        if keeper is not None:
            assert hosts[keeper] != host
            assert rank in plan.senders_to(keeper)
            for name in plan.single[rank]:
                kept[name].add(hosts[keeper])
    if len(set(hosts)) > 1:
        reach("several_hosts")
        assert all(len(places) == 2 for places in kept.values())


def _parts(generation: int, step: int, keys: str) -> list[FoundPart]:
    needs = (("a",), ("b",), ("c", "d"))
    return [FoundPart(0, generation, step, key, needs) for key in keys]


def test_the_newest_complete_state_is_chosen_and_generations_are_not_mixed() -> None:
    older = [*_parts(1, 7, "abd"), *_parts(1, 8, "ab")]
    choice = choose_copies(older)
    assert choice is not None
    assert (choice.generation, choice.step) == (1, 7)
    # The parts of step 8 that the older generation lacks are those of other sums.
    choice = choose_copies([*older, *_parts(2, 8, "cd")])
    assert choice is not None
    assert (choice.generation, choice.step) == (1, 7)
    choice = choose_copies([*older, *_parts(2, 5, "abcd")])
    assert choice is not None
    assert (choice.generation, choice.step, len(choice.parts)) == (2, 5, 4)
    assert choose_copies(_parts(2, 5, "acd")) is None


def test_a_slot_that_is_half_written_or_damaged_does_not_count(tmp_path: Path) -> None:
    value: dict[str, Any] = {
        "a": torch.arange(90_000, dtype=torch.int64),
        "b": [torch.tensor(2.5), torch.zeros(0)],
        "text": "x",
    }
    payload, slot, path = Payload(value), Slot(tmp_path / "slot"), tmp_path / "slot"
    payload.write(slot.reserve(payload.num_bytes, 4))
    assert read_slot(path) is None
    assert slot.commit(payload.num_bytes)
    copy = read_slot(path)
    assert copy is not None
    assert copy.step == 4
    read = read_payload(copy.contents)
    assert torch.equal(read["a"], value["a"])
    assert [item.tolist() for item in read["b"]] == [2.5, []]
    whole, rng = path.read_bytes(), random.Random(1)
    positions = [rng.randrange(len(whole[: 64 + payload.num_bytes])) for _ in range(40)]
    # Bytes 40 to 64 of the header are not used.
    for position in [*range(40), *(item for item in positions if not 40 <= item < 64)]:
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1 << rng.randrange(8)]) + whole[position + 1 :])
        assert read_slot(path) is None, position
    path.write_bytes(whole[:4096])
    assert read_slot(path) is None
    path.write_bytes(whole)
    slot = Slot(path)
    slot.reserve(payload.num_bytes, 5)
    assert read_slot(path) is None
    assert not slot.commit(payload.num_bytes, digest=1)
    assert read_slot(path) is None


def test_a_host_is_lost_and_training_goes_on_under_another_plan(rank_pool: RankPool, tmp_path: Path) -> None:
    folders = tuple(str(tmp_path / name) for name in "ab")
    for folder in folders:
        Path(folder).mkdir()
    before = plan_of([0, 3, 7], [["d0"], ["d1"]])
    states = rank_pool.run(2, copy_then_train, folders, before, 3)
    trained = {name: value for rank in states for name, value in rank[1].items()}
    for path in Path(folders[1]).iterdir():
        path.unlink()
    # The stages have changed places, one is replicated, and the second host has come back with nothing.
    after = plan_of([0, 2, 7], [["d0", "d1"], ["d0"]])
    everywhere = rank_pool.run(2, go_on, folders, after, 4)
    for step, extra, _, state, files in everywhere:
        assert (step, extra) == (2, {"step": 1})
        assert state
        assert all(torch.equal(value, trained[name]) for name, value in state.items())
        assert all(name.startswith("000004.") for name in files)
    assert everywhere[0][2] == 0 < everywhere[1][2]
    # The replicated stage counts as a copy: only the other one is sent.
    names = [{path.name for path in Path(folder).iterdir()} for folder in folders]
    assert {name.partition(".slot")[0] for name in names[1]} == {
        "000004.0.single",
        "000004.1.single",
        "000004.1.replicated",
    }
    alone = rank_pool.run(1, go_on, folders[1:], plan_of([0, 7], [["d0"]]), 5)
    assert alone[0][3].keys() == trained.keys()
    assert all(torch.equal(value, trained[name]) for name, value in alone[0][3].items())
