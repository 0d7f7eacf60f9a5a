"""Checkpoints of a training run: resuming from the latest one, and saving new ones."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock.dist import Phase, status_board, translate_errors
from penstock.errors import FileError, InputError
from penstock.launch.runs import Event, Noted
from penstock.launch.train_options import TrainOptions


def _any_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from. Rank 0 decides for all: loading is collective.

    Raises:
        InputError: Another host has checkpoints, and that of rank 0 has none, so the folder is not shared.
    """
    import socket

    import torch.distributed as dist

    from penstock.runtime.state import has_checkpoints

    own = (has_checkpoints(folder), socket.gethostname())
    if not dist.is_initialized():
        return own[0]
    everywhere: list[Any] = [own] * dist.get_world_size()
    with translate_errors(lambda: f"rank {dist.get_rank()}, looking for checkpoints"):
        dist.all_gather_object(everywhere, own)
    (is_there, first_host), *others = everywhere
    elsewhere = next((host for has_some, host in others if has_some), None)
    if elsewhere is not None and not is_there:
        raise InputError(
            f"host {elsewhere} has checkpoints here, but host {first_host}, which has rank 0, has none",
            where=str(folder),
            hint="Name a directory that all hosts share with --checkpoint, or remove the checkpoints to start anew.",
        )
    return bool(is_there)


class Checkpoints:
    """A rank's part in loading and saving checkpoints. Without a directory it does nothing."""

    def __init__(self, trainer: Any, scheduler: Any, options: TrainOptions, report: Callable[[Event], None]) -> None:
        self._trainer = trainer
        self._scheduler = scheduler
        self._folder = None if options.checkpoint is None else Path(options.checkpoint)
        self._every = options.save_every
        self._continues = options.on_save_error == "continue"
        self._num_steps = options.steps
        self._report = report
        self._is_async = options.async_save
        self._num_saved = 0
        """The number of steps in the latest checkpoint."""
        self._num_pending = 0
        """The number of steps in the checkpoint that is being written; 0 if there is none."""

    def resume(self) -> int:
        """Load the latest checkpoint, if there is one. Returns the number of steps that it has."""
        if self._folder is None or not _any_checkpoint(self._folder):
            return 0
        loaded = self._trainer.load(self._folder)
        for text in loaded.skipped:
            self._report(Noted(f"warning: {text}"))
        extra = loaded.extra
        if not isinstance(extra, dict) or "num_steps" not in extra:
            raise InputError(
                "this checkpoint was not written by penstock train",
                where=str(loaded.path),
                hint="Use another directory with --checkpoint, or resume in the script that wrote this one.",
            )
        if self._scheduler is not None and extra.get("scheduler") is not None:
            self._scheduler.load_state_dict(extra["scheduler"])
        self._num_saved = int(extra["num_steps"])
        if self._num_saved >= self._num_steps:
            self._report(Noted(f"{loaded.path} already has {self._num_saved} steps: there is nothing left to train"))
        else:
            self._report(Noted(f"resuming from {loaded.path}, after {self._num_saved} steps"))
        return self._num_saved

    def after_step(self, num_steps: int) -> None:
        """Save if a checkpoint is due after this number of steps (`--save-every`)."""
        if self._num_pending:
            self._try(self._num_pending, partial(self._finish_pending, wait=False))
        if self._every is None or num_steps % self._every:
            return
        if self._is_async and num_steps < self._num_steps:
            if self._num_pending:
                self._try(self._num_pending, self._finish_pending)
            self._try(num_steps, partial(self._start, num_steps))
        else:
            self._try(num_steps, partial(self._save, num_steps))

    def _try(self, num_steps: int, save: Callable[[], None]) -> None:
        try:
            save()
        except FileError as error:
            self._num_pending = 0
            # Every rank raises it, so all of them continue.
            if not self._continues or num_steps == self._num_steps:
                raise
            self._report(Noted(f"warning: no checkpoint after {num_steps} steps: {error.where}: {error.what}"))

    def finish_pending(self) -> None:
        """Finish the save that goes on beside the steps, if there is one."""
        if self._num_pending:
            self._try(self._num_pending, self._finish_pending)

    def finish(self, num_steps: int) -> None:
        """Save the final state, unless it is saved already."""
        self.finish_pending()
        if num_steps > self._num_saved:
            self._save(num_steps)

    def _save(self, num_steps: int) -> None:
        if self._folder is not None:
            status_board().enter_phase(Phase.SAVE)
            self._trainer.save(self._folder, extra=self._extra(num_steps))
            self._num_saved = num_steps

    def _start(self, num_steps: int) -> None:
        """Start a save that goes on beside the next steps."""
        status_board().enter_phase(Phase.SAVE)
        self._trainer.start_save(self._folder, extra=self._extra(num_steps))
        self._num_pending = num_steps

    def _finish_pending(self, *, wait: bool = True) -> None:
        """Finish the save that was started, if all ranks have written their files."""
        if self._trainer.finish_save(wait=wait) is not None:
            self._num_saved, self._num_pending = self._num_pending, 0

    def _extra(self, num_steps: int) -> dict[str, Any]:
        scheduler = None if self._scheduler is None else self._scheduler.state_dict()
        return {"num_steps": num_steps, "scheduler": scheduler}
