"""Copies of the state of all ranks: written after a step, and restored under any plan.

[Note: when a copy counts] A state is complete when all its parts are, those at keepers too. Ranks begin the copy of the
next state only when all of them have completed the one before (a barrier), and each part has two slots. So whenever a
rank or a host is lost, all parts of one state are there: of the last copy, or of the one before if the last was not yet
complete everywhere.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.dist import translate_errors
from penstock.errors import RunError
from penstock.runtime.rng import get_rng_states
from penstock.runtime.state.checkpoints import RankState, restore_state
from penstock.runtime.state.copies.choice import CopyChoice, FoundPart, choose_copies
from penstock.runtime.state.copies.payload import Payload, read_payload
from penstock.runtime.state.copies.placement import REPLICATED, SINGLE, CopyPlan, part_key, place_copies
from penstock.runtime.state.copies.slots import Slot, read_slot
from penstock.runtime.state.optimizer_state import merge_layouts, param_groups

NUM_SLOTS = 2
SMALL = ("layouts", "random", "extra", "loss_scale", "seed")
"""What a single part has beside entries. All ranks get it when a state is restored."""
HEAD_TAG, CONTENTS_TAG = 1, 2


@dataclass(frozen=True)
class LoadedCopy:
    """A restored state."""

    step: int
    """The step of the pipeline that follows."""
    seed: int
    extra: Any
    generation: int
    num_moved_bytes: int
    """Bytes that this rank received from other hosts."""


class _Latest(NamedTuple):
    masters: dict[str, Tensor]
    """Master weights of parameters that a sharded optimizer divides."""
    states: dict[str, dict[str, Any]]
    """States of optimizers, by parameter."""


class StateCopies:
    """A rank's part in the copies. All ranks make the same calls in the same order.

    Args:
        rank_state: The state that this rank holds.
        optimizers: Returns the optimizers.
        folder: A directory in the memory of this host, which all its ranks share and which outlives them.
        generation: A number that is larger for every new set of ranks.
        group: A process group for tensors in host memory, which nothing else uses.
    """

    def __init__(
        self,
        rank_state: RankState,
        optimizers: Callable[[], Sequence[torch.optim.Optimizer]],
        folder: Path,
        generation: int,
        group: Any,
    ) -> None:
        self._state, self._optimizers = rank_state, optimizers
        self._folder, self._generation, self._group = folder, generation, group
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._hosts: list[str] = self._gather(f"{socket.gethostname()} {folder}")
        self._is_first = self._hosts.index(self._hosts[self._rank]) == self._rank
        self._entries = {entry.name: entry for entry in rank_state.entries}
        num_bytes = {entry.name: entry.num_bytes for entry in rank_state.entries}
        self._plan: CopyPlan = place_copies(rank_state.holders, num_bytes, self._hosts)
        self._slots: dict[str, list[Slot]] = {}
        self._turn = 0
        self._exchange: _Exchange | None = None

    def close(self) -> None:
        """Wait until the last copy is complete, and release the process group."""
        self.finish()
        dist.destroy_process_group(self._group)

    @property
    def num_sent_bytes(self) -> int:
        """Bytes of the last copy that went to another host."""
        return 0 if self._exchange is None else self._exchange.num_sent_bytes

    def save(self, *, step: int, seed: int, extra: Any) -> None:
        """Copy the state into the memory of this host. It goes to other hosts beside the next step.

        Args:
            step: The number of the next step.
            seed: The seed of the random numbers.
            extra: More state; that of rank 0 is kept.
        """
        self.finish()
        self._turn = (self._turn + 1) % NUM_SLOTS
        single = part_key(self._rank, SINGLE)
        latest = self._latest()
        self._write(single, step, self._plan.single[self._rank], latest, self._small(seed, extra))
        if self._plan.replicated[self._rank]:
            self._write(part_key(self._rank, REPLICATED), step, self._plan.replicated[self._rank], latest, {})
        keeper, senders = self._plan.keepers[self._rank], self._plan.senders_to(self._rank)
        if keeper is not None or senders:
            kept = {sender: self._slot(part_key(sender, SINGLE)) for sender in senders}
            self._exchange = _Exchange(self._slot(single), keeper, kept, step, self._group)

    def finish(self) -> None:
        """Wait until the last copy is complete on all ranks."""
        if self._exchange is not None:
            self._exchange.wait()
        with translate_errors(lambda: f"rank {self._rank}, completing a copy of the state"):
            dist.all_reduce(torch.zeros(1), group=self._group)

    def load(self) -> LoadedCopy | None:
        """Restore the newest complete state that ranks of earlier generations have copied. None if there is none."""
        found = [part for parts in self._gather(self._find() if self._is_first else []) for part in parts]
        choice = choose_copies(found)
        if choice is None:
            return None
        small = self._share_small(choice)
        entries, num_moved = self._collect(choice)
        layouts = [small[key]["layouts"] for key in sorted(small, key=lambda key: int(key.partition(".")[0]))]
        groups = param_groups(merge_layouts(layouts, self._state.order()))
        own, first = small.get(part_key(self._rank, SINGLE)), small[part_key(0, SINGLE)]
        read: dict[str, Any] = {
            "model": {name: value["model"] for name, value in entries.items()},
            "optim": {
                "state": {name: _clone(value["optim"]) for name, value in entries.items() if value.get("optim")},
                "param_groups": groups,
            },
            # A rank that did not exist when the copy was made continues with the generators of rank 0.
            "random": (own or first)["random"],
        }
        if first["loss_scale"] is not None:
            read["loss_scale"] = (first["loss_scale"],)
        restore_state(self._state, self._optimizers(), read)
        return LoadedCopy(choice.step, first["seed"], first["extra"], choice.generation, num_moved)

    def remove_older(self) -> None:
        """Remove the copies of earlier generations, when all ranks have completed one of this generation."""
        self.finish()
        if self._is_first:
            for path in self._folder.glob("*.slot*"):
                if int(path.name.partition(".")[0]) < self._generation:
                    path.unlink(missing_ok=True)

    def _small(self, seed: int, extra: Any) -> dict[str, Any]:
        state = self._state
        return {
            "layouts": state.optimizer_layouts(self._optimizers()),
            "random": get_rng_states(state.device),
            "extra": extra if self._rank == 0 else None,
            "loss_scale": None if state.scaler is None else state.scaler.state,
            "seed": seed,
        }

    def _latest(self) -> "_Latest":
        """The values of this rank that are not those of its layers."""
        return _Latest(self._state.whole_masters(), self._state.optimizer_values(self._optimizers()))

    def _write(self, key: str, step: int, names: Sequence[str], latest: "_Latest", small: Mapping[str, Any]) -> None:
        entries = {
            name: {
                "model": self._state.tensor(self._entries[name], latest.masters),
                "optim": latest.states.get(name, {}),
            }
            for name in names
        }
        payload = Payload({"needs": self._plan.needs, "entries": entries, **small})
        slot = self._slot(key)
        payload.write(slot.reserve(payload.num_bytes, step))
        slot.commit(payload.num_bytes)

    def _slot(self, key: str) -> Slot:
        if key not in self._slots:
            paths = [self._folder / f"{self._generation:06}.{key}.slot{number}" for number in range(NUM_SLOTS)]
            self._slots[key] = [Slot(path) for path in paths]
        return self._slots[key][self._turn]

    def _find(self) -> list[FoundPart]:
        """The complete copies in the memory of this host."""
        found = []
        for path in sorted(self._folder.glob("*.slot*")):
            generation, rank, kind, _ = path.name.split(".")
            copy = read_slot(path)
            if copy is not None and int(generation) < self._generation:
                value = read_payload(copy.contents)
                names = tuple(value["entries"])
                key = f"{rank}.{kind}"
                found.append(FoundPart(self._rank, int(generation), copy.step, key, value["needs"], names, path.name))
        return found

    def _read(self, part: FoundPart) -> dict[str, Any]:
        copy = read_slot(self._folder / part.file, verify=False)
        if copy is None:
            raise RunError(f"rank {self._rank}: the copy {part.file} is gone", hint="Start again from a checkpoint.")
        value: dict[str, Any] = read_payload(copy.contents)
        return value

    def _share_small(self, choice: CopyChoice) -> dict[str, dict[str, Any]]:
        """By key: what single parts have beside entries, on all ranks."""
        holder: dict[str, FoundPart] = {}
        for part in choice.parts:
            if part.key.endswith(SINGLE):
                holder.setdefault(part.key, part)
        own = {}
        for key, part in holder.items():
            if part.holder == self._rank:
                value = self._read(part)
                own[key] = _clone({name: value[name] for name in SMALL})
        return {key: value for values in self._gather(own) for key, value in values.items()}

    def _collect(self, choice: CopyChoice) -> tuple[dict[str, dict[str, Any]], int]:
        """The entries that this rank holds: from the memory of this host, or else from another one."""
        held = [item.name for item in self._state.entries if not item.tensor(self._state.model).is_meta]
        held = list(dict.fromkeys([*held, *self._state.trained]))
        local: dict[str, FoundPart] = {}
        source: dict[str, FoundPart] = {}
        for part in choice.parts:
            for name in part.names:
                source.setdefault(name, part)
                if self._hosts[part.holder] == self._hosts[self._rank]:
                    local.setdefault(name, part)
        values = {
            part: self._read(part)["entries"] for part in dict.fromkeys(local[name] for name in held if name in local)
        }
        entries = {name: values[local[name]][name] for name in held if name in local}
        requests: list[list[str]] = self._gather([name for name in held if name not in local])
        num_moved = 0
        for rank, names in enumerate(requests):
            for holder in sorted({source[name].holder for name in names}):
                wanted = [name for name in names if source[name].holder == holder]
                if holder == self._rank:
                    self._send({name: self._read(source[name])["entries"][name] for name in wanted}, rank)
                elif rank == self._rank:
                    contents = self._receive(holder)
                    num_moved += len(contents)
                    entries.update(read_payload(contents))
        return entries, num_moved

    def _send(self, value: Any, rank: int) -> None:
        payload = Payload(value)
        contents = memoryview(bytearray(payload.num_bytes))
        payload.write(contents)
        with translate_errors(lambda: f"rank {self._rank}, sending state to rank {rank}"):
            dist.send(torch.tensor([len(contents)]), rank, group=self._group, tag=HEAD_TAG)
            dist.send(torch.frombuffer(contents, dtype=torch.uint8), rank, group=self._group, tag=CONTENTS_TAG)

    def _receive(self, rank: int) -> memoryview:
        size = torch.zeros(1, dtype=torch.int64)
        with translate_errors(lambda: f"rank {self._rank}, receiving state from rank {rank}"):
            dist.recv(size, rank, group=self._group, tag=HEAD_TAG)
            contents = memoryview(bytearray(int(size)))
            dist.recv(torch.frombuffer(contents, dtype=torch.uint8), rank, group=self._group, tag=CONTENTS_TAG)
        return contents

    def _gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self._world
        with translate_errors(lambda: f"rank {self._rank}, comparing copies of the state"):
            dist.all_gather_object(values, value, group=self._group)
        return values


class _Exchange:
    """The transfer of one copy: this rank's single part to its keeper, and those that it keeps, in a thread."""

    def __init__(self, own: Slot, keeper: int | None, kept: Mapping[int, Slot], step: int, group: Any) -> None:
        self._own, self._keeper, self._kept, self._step, self._group = own, keeper, kept, step, group
        self._error: BaseException | None = None
        self.num_sent_bytes = 0 if keeper is None else own.head()[1]
        self._thread = Thread(target=self._run, name="penstock-copies", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for its end, and raise what it has raised."""
        rank = dist.get_rank()
        with translate_errors(lambda: f"rank {rank}, sending a copy of its state to rank {self._keeper}"):
            self._thread.join()
            if self._error is not None:
                raise self._error

    def _run(self) -> None:
        try:
            self._transfer()
        except BaseException as error:
            self._error = error

    def _transfer(self) -> None:
        works = []
        if self._keeper is not None:
            _, num_bytes, digest = self._own.head()
            head = torch.tensor([num_bytes, digest])
            contents = torch.frombuffer(self._own.contents(num_bytes), dtype=torch.uint8)
            works = [
                dist.isend(head, self._keeper, group=self._group, tag=HEAD_TAG),
                dist.isend(contents, self._keeper, group=self._group, tag=CONTENTS_TAG),
            ]
        for sender, slot in self._kept.items():
            head = torch.zeros(2, dtype=torch.int64)
            dist.recv(head, sender, group=self._group, tag=HEAD_TAG)
            num_bytes, digest = head.tolist()
            memory = torch.frombuffer(slot.reserve(num_bytes, self._step), dtype=torch.uint8)
            dist.recv(memory, sender, group=self._group, tag=CONTENTS_TAG)
            if not slot.commit(num_bytes, digest):
                raise RunError(f"a copy of the state of rank {sender} was damaged on its way")
        for work in works:
            if work is not None:
                work.wait()


def _clone(value: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, value)
