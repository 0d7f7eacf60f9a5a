"""Saving and loading the state of training, under any plan and on any number of ranks.

State is stored under the model's own names, so it does not depend on which rank held it:

    model     parameters and buffers, as in model.state_dict()
    optim     in the layout of torch.distributed.checkpoint.state_dict: state by name, groups
    random    by rank: states of torch's generators
    loss_scale  the state of the loss scaler, if there is one
    extra     the user's value, in a tuple of one

`torch_files` is imported where it is needed, because torch.distributed.checkpoint takes long to import.
"""

import logging
import time
import weakref
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from penstock.dist import Consensus
from penstock.errors import FileError, InputError
from penstock.io import reason
from penstock.runtime.state.checkpoints import directory
from penstock.runtime.state.checkpoints.digests import find_damage
from penstock.runtime.state.checkpoints.directory import Complete, Lock
from penstock.runtime.state.checkpoints.rank_state import RankState, read_state, restore_state, state_to_write
from penstock.runtime.state.checkpoints.unfinished_save import PendingSave, UnfinishedSave, copy_to_host
from penstock.runtime.state.optimizer_state import OptimizerLayout, check_fits, merge_layouts

_log = logging.getLogger(__name__)

DEFAULT_KEEP = 2
VISIBLE_WITHIN_S = 3.0
"""On storage that hosts share, a new directory may become visible to other hosts a little later."""


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A loaded checkpoint."""

    step: int
    """Number of the next step, counted from 0."""
    extra: Any
    """The value of `extra=` when the checkpoint was saved; None if there was none."""
    path: Path
    seed: int
    skipped: tuple[str, ...] = ()
    """What is wrong with each damaged checkpoint that was passed over."""


class Checkpoints:
    """Saves and loads the checkpoints of a pipeline, with its optimizers. All ranks must make the same calls."""

    def __init__(self, rank_state: RankState, consensus: Consensus) -> None:
        self.rank_state = rank_state
        self._consensus = consensus
        self._optimizer_refs: list[weakref.ref[torch.optim.Optimizer]] = []
        self._pending: PendingSave | None = None

    def add(self, optimizer: torch.optim.Optimizer) -> None:
        """Include an optimizer in checkpoints, as long as it is referenced elsewhere."""
        self._optimizer_refs.append(weakref.ref(optimizer))

    def save(self, folder: Path, *, step: int, seed: int, extra: Any, keep: int | None) -> Path:
        """Write a checkpoint. It becomes visible in the directory only when it is complete.

        Args:
            folder: The checkpoint directory.
            step: Number of the next step.
            seed: Seed of the random numbers.
            extra: A picklable value of the user.
            keep: Number of checkpoints to keep; None keeps all.

        Returns:
            The path of the checkpoint.

        Raises:
            InputError: `keep` is less than 1, or another process is writing to the directory.
            FileError: The directory cannot be written.
        """
        self.finish_save()
        with self._begin(folder, step, seed, extra, keep) as unfinished:
            return unfinished.finish(unfinished.writer.write)

    def start_save(self, folder: Path, *, step: int, seed: int, extra: Any, keep: int | None) -> None:
        """Copy the state to host memory and write it in a thread. `finish_save` makes the checkpoint visible.

        Arguments and errors are those of `save`.
        """
        self.finish_save()
        unfinished = self._begin(folder, step, seed, extra, keep, in_copy=True)
        self._pending = PendingSave(unfinished)

    def finish_save(self, *, wait: bool = True) -> Path | None:
        """Finish the save that `start_save` has begun.

        Args:
            wait: Whether to wait until all ranks have written their files. Otherwise nothing happens before that.

        Returns:
            The path of the checkpoint, or None: there is no save to finish, or not all ranks have written.

        Raises:
            FileError: The files cannot be written.
        """
        pending = self._pending
        if pending is None or not (wait or self._all_have_written(pending)):
            return None
        self._pending = None
        with pending.unfinished as unfinished:
            return unfinished.finish(pending.written)

    def _all_have_written(self, pending: PendingSave) -> bool:
        def merge(each: list[bool]) -> list[bool]:
            return [all(each)] * len(each)

        return self._consensus.decide("looking whether a checkpoint is written", lambda: pending.has_written, merge)

    def _begin(
        self, folder: Path, step: int, seed: int, extra: Any, keep: int | None, *, in_copy: bool = False
    ) -> UnfinishedSave:
        from penstock.runtime.state.checkpoints.torch_files import StateWriter

        if keep is not None and keep < 1:
            raise InputError(f"keep ({keep}) must be at least 1", hint="Pass None to keep all checkpoints.")
        rank_state, consensus, optimizers = self.rank_state, self._consensus, self.optimizers()
        with ExitStack() as stack:

            def begin(layouts: list[list[OptimizerLayout]]) -> list[tuple[str, tuple[OptimizerLayout, ...]]]:
                merged = merge_layouts(layouts, rank_state.order())
                return [(_begin(folder, step, stack), merged)] * consensus.world

            name, merged = consensus.decide(
                "starting a checkpoint", lambda: rank_state.optimizer_layouts(optimizers), begin
            )
            path = folder / name
            if consensus.rank == 0:
                stack.callback(directory.remove, [path])
            consensus.run_everywhere(
                "looking for the checkpoint directory", lambda: _wait_until_visible(path, consensus.rank)
            )
            state = state_to_write(rank_state, consensus.rank, optimizers, merged, extra)
            writer = StateWriter(copy_to_host(state) if in_copy else state, path, consensus)
            kinds = tuple(item.kind for item in merged)
            return UnfinishedSave(path, step, seed, kinds, keep, writer, consensus, stack.pop_all())

    def load(self, folder: Path, *, step: int | None, with_optimizers: bool) -> LoadedCheckpoint:
        """Load a checkpoint on all ranks, or on none.

        Args:
            folder: The checkpoint directory.
            step: Step of the checkpoint; None loads the last one.
            with_optimizers: Whether to load the state of the optimizers too.

        Raises:
            FileError: There is no complete checkpoint, or it is damaged.
            MismatchError: The checkpoint is of another model, or has other optimizers.
        """
        from penstock.runtime.state.checkpoints.torch_files import StoredCheckpoint

        rank_state, consensus = self.rank_state, self._consensus
        optimizers = self.optimizers() if with_optimizers else []
        chosen, skipped = self._choose_undamaged(folder, step)
        path, record = chosen.path, chosen.record

        def check_optimizers(layouts: list[list[OptimizerLayout]]) -> list[None]:
            if with_optimizers:
                groups = StoredCheckpoint(path).read(lambda path: path[:2] == ("optim", "param_groups"))
                merged = merge_layouts(layouts, rank_state.order())
                check_fits(record.optimizers, groups.get("optim", {}).get("param_groups", []), merged)
            return [None] * consensus.world

        consensus.decide("comparing the optimizers", lambda: rank_state.optimizer_layouts(optimizers), check_optimizers)
        read = consensus.run_everywhere(
            "reading a checkpoint", lambda: read_state(rank_state, path, consensus.rank, with_state=with_optimizers)
        )
        restore_state(rank_state, optimizers, read)
        if consensus.rank == 0:
            for text in skipped:
                _log.warning("%s; loading %s instead", text, path)
        return LoadedCheckpoint(record.step, read.get("extra", (None,))[0], path, record.seed, skipped)

    def _choose_undamaged(self, folder: Path, step: int | None) -> tuple[Complete, tuple[str, ...]]:
        """Choose a checkpoint whose files are as they were written. The ranks share the work of reading them.

        Returns:
            The checkpoint, and a description of each newer one that is damaged.
        """
        consensus = self._consensus
        damaged: dict[str, str] = {}
        while True:

            def choose(_: list[None]) -> list[tuple[Complete, tuple[str, ...]]]:
                with directory.locked(folder) as lock:
                    if lock is Lock.HELD:
                        directory.remove(directory.unfinished_in(folder))
                return [directory.choose(folder, step, damaged)] * consensus.world

            chosen, skipped = consensus.decide("choosing a checkpoint", lambda: None, choose)

            def verify_own_share(chosen: Complete = chosen) -> str:
                _wait_until_visible(folder / chosen.path.name, consensus.rank)
                files = sorted(chosen.record.files.items())
                return find_damage(folder / chosen.path.name, dict(files[consensus.rank :: consensus.world]))

            def first(found: list[str]) -> list[str]:
                return [next(filter(None, found), "")] * consensus.world

            damage = consensus.decide("verifying a checkpoint", verify_own_share, first)
            if not damage:
                return Complete(folder / chosen.path.name, chosen.record), skipped
            damaged[chosen.path.name] = damage

    def save_pretrained(self, folder: Path) -> Path:
        """Write the model as a folder of safetensors files.

        Raises:
            InputError: The folder has contents already.
            FileError: The folder cannot be written.
        """
        from penstock.runtime.state.pretrained_folder import save_pretrained

        rank_state = self.rank_state
        whole = rank_state.whole_masters()
        return save_pretrained(
            rank_state.model,
            rank_state.entries,
            rank_state.writers,
            self._consensus,
            folder,
            _wait_until_visible,
            read=lambda entry: rank_state.tensor(entry, whole),
        )

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers that are included."""
        return [optimizer for ref in self._optimizer_refs if (optimizer := ref()) is not None]


def _begin(folder: Path, step: int, stack: ExitStack) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot write checkpoints: {reason(error)}", where=str(folder)) from None
    lock = stack.enter_context(directory.locked(folder))
    if lock is Lock.TAKEN:
        raise InputError(
            "another process is writing a checkpoint to this directory",
            where=str(folder),
            hint="Use a separate directory for every run.",
        )
    if lock is Lock.HELD:
        directory.remove(directory.unfinished_in(folder))
    return directory.begin(folder, step).name


def _wait_until_visible(path: Path, rank: int) -> None:
    deadline = time.monotonic() + VISIBLE_WITHIN_S
    while not path.is_dir():
        if time.monotonic() > deadline:
            raise InputError(
                f"rank {rank} cannot access the checkpoint of rank 0",
                where=str(path.parent),
                hint="Pass the same directory on every rank, on storage that all hosts share.",
            )
        time.sleep(0.05)
