"""What all runs of several processes share: launcher, rendezvous, consensus, failure translation, shutdown, watchdog.

Importing it does not load torch.
"""

from penstock.dist.consensus import CONSENSUS_TAG, Consensus, Failed, PeerExchange, RankTree, tree_from
from penstock.dist.failures import Describe, translate_error, translate_errors, wait_for
from penstock.dist.interfaces import interface_of, is_loopback
from penstock.dist.launcher import SHUTDOWN_S, Launcher
from penstock.dist.parent import die_with_parent, exit_with_parent, started_by
from penstock.dist.processes import Process, RankModule

from penstock.dist.rendezvous import (
    HostPlace,
    connect_when_used,
    is_local,
    join_process_group,
    local_environment,
    open_status_store,
    raise_connection_limit,
    store_file,
    write_store_file,
)
from penstock.dist.run_dir import memory_dir, run_dir, stderr_path
from penstock.dist.shutdown import (
    STOPPED_CODES,
    delay_sigterm,
    exit_now,
    exit_with_message,
    ignore_stop_signals,
    prepare_rank,
    sigterm_as_ctrl_c,
    stop_signals,
)
from penstock.dist.rank_status import NO_ACTION, LastStatus, Phase, open_status_board, read_status_board, status_board
from penstock.dist.warm_start import RankTemplate, can_fork
from penstock.dist.watchdog import Watchdog

__all__ = [
    "CONSENSUS_TAG",
    "NO_ACTION",
    "SHUTDOWN_S",
    "STOPPED_CODES",
    "Consensus",
    "Describe",
    "Failed",
    "HostPlace",
    "LastStatus",
    "Launcher",
    "PeerExchange",
    "Phase",
    "Process",
    "RankModule",
    "RankTemplate",
    "RankTree",
    "Watchdog",
    "can_fork",
    "connect_when_used",
    "delay_sigterm",
    "die_with_parent",
    "exit_now",
    "exit_with_message",
    "exit_with_parent",
    "ignore_stop_signals",
    "interface_of",
    "is_local",
    "is_loopback",
    "join_process_group",
    "local_environment",
    "memory_dir",
    "open_status_board",
    "open_status_store",
    "prepare_rank",
    "raise_connection_limit",
    "read_status_board",
    "run_dir",
    "sigterm_as_ctrl_c",
    "started_by",
    "status_board",
    "stderr_path",
    "stop_signals",
    "store_file",
    "translate_error",
    "translate_errors",
    "tree_from",
    "wait_for",
    "write_store_file",
]
