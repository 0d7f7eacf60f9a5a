"""A checkpoint that is being written: by the ranks themselves, or by a thread of each while training goes on."""

import copy
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.dist import Consensus
from penstock.runtime.state.checkpoints import directory
from penstock.runtime.state.checkpoints.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.runtime.state.checkpoints.torch_files import StateWriter, Written


@dataclass(frozen=True)
class UnfinishedSave:
    """A checkpoint without its last file. Leaving its context removes what is not complete, and gives up the lock.

    Attributes:
        path: Its directory.
        step: Number of the next step.
        seed: Seed of the random numbers.
        optimizers: Classes of the optimizers.
        keep: Number of checkpoints to keep; None keeps all.
        writer: Writes the files of this rank.
        consensus: Agreement between the ranks.
        resources: The lock of the directory, on rank 0.
    """

    path: Path
    step: int
    seed: int
    optimizers: tuple[str, ...]
    keep: int | None
    writer: "StateWriter"
    consensus: Consensus
    resources: ExitStack

    def __enter__(self) -> "UnfinishedSave":
        return self

    def __exit__(self, *_error: object) -> None:
        self.resources.close()

    def finish(self, written: "Callable[[], Written]") -> Path:
        """Make the checkpoint visible. All ranks must call it.

        Args:
            written: Returns or raises what the writer of this rank has returned or raised.

        Returns:
            The path of the checkpoint.
        """
        files, consensus = self.writer.close(written), self.consensus

        def finish(_: list[None]) -> list[Path]:
            record = Record(
                step=self.step,
                number=directory.next_number(self.path.parent),
                seed=self.seed,
                optimizers=self.optimizers,
                world=consensus.world,
                files=files,
            )
            return [directory.finish(self.path, record, self.keep)] * consensus.world

        return consensus.decide("finishing a checkpoint", lambda: None, finish)


class PendingSave:
    """A save whose files are written by a thread.

    Args:
        unfinished: The save. Its writer must have a copy of the state.
    """

    def __init__(self, unfinished: UnfinishedSave) -> None:
        self.unfinished = unfinished
        self._outcome: Future[Written] = Future()
        # A daemon, because a process that fails must not wait for a checkpoint that will never be complete.
        Thread(target=self._write, name="penstock-checkpoint", daemon=True).start()

    @property
    def has_written(self) -> bool:
        """Whether the thread has ended."""
        return self._outcome.done()

    def written(self) -> "Written":
        """Wait for the thread, and return or raise what the writer has returned or raised."""
        return self._outcome.result()

    def _write(self) -> None:
        try:
            self._outcome.set_result(self.unfinished.writer.write())
        except BaseException as error:
            self._outcome.set_exception(error)


def copy_to_host(state: dict[str, Any]) -> dict[str, Any]:
    """Copy a state, which training changes, to host memory."""
    copied: dict[str, Any] = pytree.tree_map(
        lambda leaf: leaf.detach().to("cpu", copy=True) if isinstance(leaf, Tensor) else copy.deepcopy(leaf), state
    )
    return copied
