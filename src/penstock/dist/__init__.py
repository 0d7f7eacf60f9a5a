"""What probe and runtime share on torch.distributed: consensus, failure translation, shutdown, watchdog."""

from penstock.dist.consensus import CONSENSUS_TAG, Consensus
from penstock.dist.failures import Describe, translate_error, translate_errors, wait_for
from penstock.dist.rendezvous import is_local, join_process_group, local_environment, open_status_store
from penstock.dist.shutdown import delay_sigterm
from penstock.dist.watchdog import Watchdog

__all__ = [
    "CONSENSUS_TAG",
    "Consensus",
    "Describe",
    "Watchdog",
    "delay_sigterm",
    "is_local",
    "join_process_group",
    "local_environment",
    "open_status_store",
    "translate_error",
    "translate_errors",
    "wait_for",
]
