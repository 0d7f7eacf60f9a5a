"""The proof that replica syncs cannot deadlock, for layers that the profile of the plan does not know as such."""

from penstock.errors import InputError
from penstock.plan.pricing import Costs
from penstock.program.proof import SYNC_HINT, Proof, find_blocked_sync
from penstock.runtime.layout.layout import Layout


def has_unproved_sync(costs: Costs, layout: Layout) -> bool:
    """Return whether the model has replica syncs that the profile does not have, and the proof has not checked."""
    return not _synced_stages(layout) <= set(costs.restrictions.synced)


def check_replica_sync(proof: Proof, layout: Layout) -> None:
    """Check that the replica syncs of a program cannot deadlock.

    Raises:
        InputError: The replicas of a stage run its syncs in incompatible orders.
    """
    # The proof has checked the stages whose replica syncs the profile has, but not together with these.
    if not has_unproved_sync(proof.costs, layout):
        return
    synced = _synced_stages(layout)
    blocked = find_blocked_sync(proof.program, proof.dependencies, synced)
    if blocked is not None:
        devices = ", ".join(layout.devices[rank] for rank in layout.stages[blocked.stage].forward)
        raise InputError(
            f"stage {blocked.stage} has batch norm and replicas on {devices}, which run its micro-batches in orders "
            f"that deadlock in the replica sync (micro-batch {blocked.microbatch})",
            hint=SYNC_HINT,
        )


def _synced_stages(layout: Layout) -> set[int]:
    return {number for number, stage in enumerate(layout.stages) if stage.needs_sync}
