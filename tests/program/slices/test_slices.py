"""Program slices equal the program that they were cut from, in memory and in a file; damaged files are refused."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given

from penstock.errors import FileError, InputError
from penstock.program.actions import SEND_KINDS, Kind
from penstock.program.slices import (
    ProgramSlice,
    load_slice,
    pack_slices,
    save_slices,
    slice_program,
    unpack_slice,
)
from penstock.program.slices.program_slice import SliceArrays, digest_slice
from penstock.program.types import Program, program_from_actions
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, two_stages
from tests.support.thoroughness import examples

CASE = two_stages(num_microbatches=2)
LOWERED = CASE.lowered(CASE.costs)


def plain_links(program: Program) -> set[tuple[Kind, str, str]]:
    """Sends by kind, sender and receiver."""
    return {
        (action.kind, device, action.peer)
        for device in program.devices
        for action in program.actions(device)
        if action.kind in SEND_KINDS
    }


def plain_split(program: Program, device: str) -> set[tuple[str, int, int]]:
    """The split backwards of a device, and those of its forwards on other devices."""
    pairs = {
        (backward.device, number)
        for number, stage in enumerate(program.plan.stages)
        for forward, backward in zip(stage.forward, stage.backward, strict=True)
        if device in (forward.device, backward.device)
    }
    return {
        (name, action.stage, action.microbatch)
        for name in program.devices
        for action in program.actions(name)
        if action.kind == Kind.I and (name, action.stage) in pairs
    }


def named_links(part: ProgramSlice) -> set[tuple[Kind, str, str]]:
    return {(Kind(kind), part.devices[sender], part.devices[target]) for kind, sender, target in part.links.tolist()}


@reaches(remote_split=0.02, several=0.5, idle=0.05)
@examples(100)
@given(case=cases())
def test_a_slice_equals_the_program(case: Case) -> None:
    program = case.lowered(case.costs)
    packed = pack_slices(program)
    names = program.devices
    reach("several", len(names) > 1)
    reach("idle", any(not list(program.actions(name)) for name in names))
    wholes = set()
    for number, name in enumerate(names):
        direct = slice_program(program, name)
        for part in (direct, unpack_slice(packed.header, packed.slices[number], name, where="memory")):
            reach("remote_split", len(part.arrays.remote_split))
            assert list(part.actions()) == list(program.actions(name))
            assert part.num_actions == len(list(program.actions(name)))
            assert part.split_backwards() == plain_split(program, name)
            assert named_links(part) == plain_links(program)
            assert part.plan == program.plan.digest
            wholes.add(part.program)
    assert len(wholes) == 1
    nobody = slice_program(program, None)
    assert (nobody.program, nobody.num_actions, nobody.split_backwards()) == (*wholes, 0, set())


def test_slices_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "slices"
    save_slices(LOWERED, path)
    for name in LOWERED.devices:
        part, direct = load_slice(path, name), slice_program(LOWERED, name)
        assert list(part.actions()) == list(LOWERED.actions(name))
        assert part.program == direct.program
        assert part.arrays.encode() == direct.arrays.encode()
    assert load_slice(path, None).num_actions == 0
    with pytest.raises(InputError, match="no slice for device 'elsewhere'"):
        load_slice(path, "elsewhere")


def test_the_digest_depends_on_every_action_and_on_the_plan() -> None:
    orders = [list(LOWERED.actions(name)) for name in LOWERED.devices]
    digests = {slice_program(LOWERED, None).program}
    changed = [
        program_from_actions(LOWERED.plan, LOWERED.devices, [[*orders[0][:-2], *orders[0][:-3:-1]], orders[1]]),
        program_from_actions(LOWERED.plan, LOWERED.devices, [orders[0][:-1], orders[1]]),
        program_from_actions(msgspec.structs.replace(LOWERED.plan, micro_batch_size=9), LOWERED.devices, orders),
    ]
    digests |= {slice_program(program, None).program for program in changed}
    assert len(digests) == 1 + len(changed)


def test_no_changed_byte_changes_a_slice(tmp_path: Path) -> None:
    path = tmp_path / "slices"
    save_slices(LOWERED, path)
    good, direct = path.read_bytes(), slice_program(LOWERED, LOWERED.devices[0])
    end = good.index(b"\n") + 1
    own = len(pack_slices(LOWERED).slices[0])
    num_refused = 0
    for at in range(end + own):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        try:
            part = load_slice(path, LOWERED.devices[0])
        except InputError:
            num_refused += 1
        else:
            # Such as the size of another slice.
            assert list(part.actions()) == list(direct.actions())
            assert (part.plan, part.program, part.devices) == (direct.plan, direct.program, direct.devices)
            assert part.links.tolist() == direct.links.tolist()
    assert num_refused > 0.9 * (end + own)
    for length in (0, 1, end - 1, end, end + own - 1):
        path.write_bytes(good[:length])
        with pytest.raises(InputError):
            load_slice(path, LOWERED.devices[0])
    # The slices of other devices are not read.
    path.write_bytes(good[: end + own] + bytes(3))
    assert load_slice(path, LOWERED.devices[0]).num_actions


def test_other_arrays_with_the_same_bytes_have_another_digest() -> None:
    twelve, none = np.zeros(12, np.int32), np.zeros(0, np.int32)
    actions = SliceArrays(np.zeros(12, np.int8), twelve, twelve, twelve, np.zeros((0, 3), np.int32))
    split = SliceArrays(np.zeros(0, np.int8), none, none, none, np.zeros((13, 3), np.int32))
    assert actions.encode() == split.encode()
    assert digest_slice(actions) != digest_slice(split)


def test_a_slice_of_another_program_is_refused() -> None:
    fused = two_stages(num_microbatches=3)
    mine, other = pack_slices(LOWERED), pack_slices(fused.lowered(fused.costs))
    with pytest.raises(InputError, match="slice of device 'd0' is damaged"):
        unpack_slice(mine.header, other.slices[0], "d0", where="here")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file"):
        load_slice(tmp_path / "none", "d0")
    with pytest.raises(FileError, match="cannot be read"):
        load_slice(tmp_path, "d0")
    (tmp_path / "text").write_text("{}\n")
    with pytest.raises(InputError, match=r"must be 'penstock\.slices/1'"):
        load_slice(tmp_path / "text", "d0")
