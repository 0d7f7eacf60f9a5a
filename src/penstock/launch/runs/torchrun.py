"""torchrun, for ranks on several hosts: its command, and the exit statuses in its report."""

import re
import sys
from collections.abc import Sequence

from penstock.dist import STOPPED_CODES
from penstock.errors import InputError
from penstock.launch.runs.events import Exited

DEFAULT_PORT = 29500
_FAILURE = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s+exitcode\s*:\s*(-?\d+)")


def torchrun_command(
    *, nnodes: int, node_rank: int, endpoint: str, num_ranks: int, module: str, arguments: Sequence[str]
) -> list[str]:
    """The command that starts the ranks of one of several hosts.

    Args:
        nnodes: The number of hosts.
        node_rank: The index of this host.
        endpoint: Address of host 0, with or without a port.
        num_ranks: The number of ranks on this host.
        module: The Python module that a rank runs.
        arguments: Its arguments.
    """
    address, port = parse_endpoint(endpoint)
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", str(nnodes), "--node-rank", str(node_rank)),
        *("--master-addr", address, "--master-port", str(port)),
        *("--nproc-per-node", str(num_ranks), "-m", module, *arguments),
    ]


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """Split ADDRESS:PORT; the port may be left out.

    >>> parse_endpoint("10.0.0.1:1234"), parse_endpoint("node1")
    (('10.0.0.1', 1234), ('node1', 29500))
    """
    address, _, port = endpoint.rpartition(":")
    if not address or not port.isdecimal():
        address, port = endpoint.rstrip(":"), str(DEFAULT_PORT)
    if not 0 < int(port) < 1 << 16:
        raise InputError(f"{port} is not a port", where="--rdzv-endpoint", hint="Use 1 to 65535.")
    return address, int(port)


def torchrun_exits(log: str) -> dict[int, Exited]:
    """The exit statuses of ranks in the report that torchrun writes when one has failed."""
    codes = {int(rank): int(code) for rank, code in _FAILURE.findall(log)}
    return {rank: Exited(code, was_stopped=code in STOPPED_CODES) for rank, code in codes.items()}
