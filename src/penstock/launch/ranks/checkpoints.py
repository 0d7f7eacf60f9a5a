"""Checkpoints of a training: going on from the last one, and saving on the way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock.launch.events import Event, Noted
from penstock.launch.train_options import Training


class Saving:
    """A rank's part in that; without a folder it does nothing."""

    def __init__(self, trainer: Any, scheduler: Any, asked: Training, tell: Callable[[Event], None]) -> None:
        self._trainer = trainer
        self._scheduler = scheduler
        self._folder = None if asked.checkpoint is None else Path(asked.checkpoint)
        self._every = asked.save_every
        self._num_steps = asked.steps
        self._tell = tell
        self._saved = 0
        """Up to how many steps have been saved."""

    def begin(self) -> int:
        """Load what there is; gives how many steps are done already."""
        from penstock.runtime.state import find_checkpoints

        if self._folder is None or not self._folder.is_dir() or not find_checkpoints(self._folder):
            return 0
        loaded = self._trainer.load(self._folder)
        extra = loaded.extra
        if not isinstance(extra, dict) or "num_steps" not in extra:
            raise InputError(
                "this checkpoint was not written by penstock train",
                where=str(loaded.path),
                hint="Give --checkpoint a folder of its own, or go on in the script that wrote this one.",
            )
        if self._scheduler is not None and extra.get("scheduler") is not None:
            self._scheduler.load_state_dict(extra["scheduler"])
        self._saved = int(extra["num_steps"])
        if self._saved >= self._num_steps:
            self._tell(Noted(f"{loaded.path} has {self._saved} steps already: nothing is left to train"))
        else:
            self._tell(Noted(f"goes on from {loaded.path}, after {self._saved} steps"))
        return self._saved

    def after(self, num_steps: int) -> None:
        """So many steps are done."""
        if self._every is not None and num_steps % self._every == 0:
            self._save(num_steps)

    def finish(self, num_steps: int) -> None:
        """No more steps come."""
        if num_steps > self._saved:
            self._save(num_steps)

    def _save(self, num_steps: int) -> None:
        if self._folder is not None:
            scheduler = None if self._scheduler is None else self._scheduler.state_dict()
            self._trainer.save(self._folder, extra={"num_steps": num_steps, "scheduler": scheduler})
            self._saved = num_steps
