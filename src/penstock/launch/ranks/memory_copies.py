"""Copies of the state in memory, from which the next ranks of an elastic run go on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from penstock.dist import Phase, status_board
from penstock.launch.runs import Event, Resumed


class Copying(NamedTuple):
    """How the state of a run is copied."""

    folder: Path
    generation: int
    """The number of this set of ranks."""
    every: int
    """Steps between two copies; 0: only when the ranks pause."""
    until: int | None
    """The ranks pause when this many steps are done."""


class MemoryCopies:
    """A rank's part in the copies. Without `copying` it does nothing."""

    def __init__(self, trainer: Any, scheduler: Any, copying: Copying | None, report: Callable[[Event], None]) -> None:
        self._trainer, self._scheduler, self._copying, self._report = trainer, scheduler, copying, report
        self._num_copied = -1
        if copying is not None:
            trainer.open_copies(copying.folder, generation=copying.generation)

    def resume(self) -> int | None:
        """Restore the last copy. Returns the number of steps that it has; None if there is no copy."""
        if self._copying is None or not self._copying.generation:
            return None
        status_board().enter_phase(Phase.MAKING, text="restoring a copy of the state")
        loaded = self._trainer.load_copy()
        if loaded is None:
            return None
        if self._scheduler is not None and loaded.extra["scheduler"] is not None:
            self._scheduler.load_state_dict(loaded.extra["scheduler"])
        self._num_copied = int(loaded.extra["num_steps"])
        self._report(Resumed(self._num_copied))
        return self._num_copied

    def begin(self, num_steps: int) -> None:
        """Report that training begins without a copy, with so many steps done."""
        if self._copying is not None:
            self._report(Resumed(num_steps))

    def after_step(self, num_steps: int) -> None:
        """Copy the state if a copy is due after this number of steps."""
        if self._copying is not None and self._copying.every and num_steps % self._copying.every == 0:
            self._save(num_steps, wait=False)

    def pauses_after(self, num_steps: int) -> bool:
        """Whether the ranks pause when this many steps are done."""
        return self._copying is not None and self._copying.until == num_steps

    def complete(self, num_steps: int) -> None:
        """Copy the state, unless that is done, and wait until the copy is complete on all ranks."""
        if self._copying is None:
            return
        if self._num_copied == num_steps:
            self._trainer.finish_copy()
        else:
            self._save(num_steps, wait=True)

    def _save(self, num_steps: int, *, wait: bool) -> None:
        status_board().enter_phase(Phase.SAVE, text="copying the state")
        scheduler = None if self._scheduler is None else self._scheduler.state_dict()
        self._trainer.save_copy(extra={"num_steps": num_steps, "scheduler": scheduler}, wait=wait)
        self._num_copied = num_steps
