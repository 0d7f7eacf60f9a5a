"""How ranks end after the same step, when a signal asked the command to end.

The command writes the name of the signal to a file in the directory of the run. Rank 0 looks for it, and tells all
ranks in a broadcast after the same step, about twice a second.
"""

from enum import IntEnum
from pathlib import Path

from penstock.dist import translate_errors
from penstock.launch.runs import SWITCH, stop_file

CHECK_EVERY_S = 0.5


class Wish(IntEnum):
    """What the command asks the ranks for."""

    GO_ON = 0
    STOP = 1
    """Save and end, because of a signal."""
    SWITCH = 2
    """Complete a copy of the state and end, so that other ranks go on with another plan."""


class StopAgreement:
    """One rank's part in the agreement. Every rank calls `after_step` after every step.

    Args:
        folder: The directory of the run; None: nothing asks these ranks to end.
        is_distributed: Whether there are other ranks.
    """

    def __init__(self, folder: Path | None, *, is_distributed: bool) -> None:
        self._path = None if folder is None else stop_file(folder)
        self._is_distributed = is_distributed
        self._next_step = 0

    def after_step(self, step: int, step_s: float) -> Wish:
        """Whether and why all ranks end after this step. Collective, in the same steps on all ranks."""
        if self._path is None or step < self._next_step:
            return Wish.GO_ON
        wish = _read_wish(self._path)
        if self._is_distributed:
            step_s, wish = _take_from_first(step, step_s, wish)
        self._next_step = step + max(1, round(CHECK_EVERY_S / max(step_s, 1e-6)))
        return wish


def _read_wish(path: Path) -> Wish:
    try:
        return Wish.SWITCH if path.read_text() == SWITCH else Wish.STOP
    except FileNotFoundError:
        return Wish.GO_ON


def _take_from_first(step: int, step_s: float, wish: Wish) -> tuple[float, Wish]:
    import torch
    import torch.distributed as dist

    values = torch.tensor([step_s, float(wish)], dtype=torch.float64)
    with translate_errors(lambda: f"rank {dist.get_rank()}, step {step}, agreeing whether to go on"):
        dist.broadcast(values, 0)
    return float(values[0]), Wish(int(values[1]))
