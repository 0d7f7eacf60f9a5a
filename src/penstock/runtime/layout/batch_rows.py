"""The rows of a batch by stage, micro-batch and replica."""

from collections.abc import Sequence

from penstock.runtime.tensors import Rows, microbatch_rows, replica_rows


class BatchRows:
    """The rows of the replicas of every stage. Those of a stage are computed when they are first used.

    Stages with the same shares have the same rows, so the work does not grow with the number of stages.

    Args:
        num_rows: The number of rows of the batch.
        num_microbatches: The number of micro-batches.
        shares: The shares of the replicas of each stage.
    """

    def __init__(self, num_rows: int, num_microbatches: int, shares: Sequence[tuple[float, ...]]) -> None:
        self._microbatches = microbatch_rows(num_rows, num_microbatches)
        self._shares = shares
        self._known: dict[tuple[float, ...], list[tuple[Rows, ...]]] = {}

    def __getitem__(self, stage: int) -> list[tuple[Rows, ...]]:
        """Return the rows of each replica of a stage, by micro-batch."""
        shares = self._shares[stage]
        if shares not in self._known:
            self._known[shares] = [replica_rows(part, shares) for part in self._microbatches]
        return self._known[shares]
