"""Which ranks run on this host, and the torchrun command that starts them."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.bundle import Opened
from penstock.errors import InputError

DEFAULT_PORT = 29500


@dataclass(frozen=True)
class Hosts:
    """How many hosts train together, which one this is, and where they meet."""

    nnodes: int = 1
    node_rank: int = 0
    rdzv_endpoint: str | None = None

    def __post_init__(self) -> None:
        if self.nnodes > 1 and self.rdzv_endpoint is None:
            raise InputError(
                "several hosts must know where they meet",
                where="--rdzv-endpoint",
                hint="Give the address of host 0 on each of them, such as --rdzv-endpoint 10.0.0.1:29500.",
            )
        if self.node_rank >= self.nnodes:
            raise InputError(
                f"host {self.node_rank} is not one of {self.nnodes}", where="--node-rank", hint="They count from 0."
            )
        if self.nnodes == 1 and self.rdzv_endpoint is not None:
            raise InputError("one host meets nobody", where="--rdzv-endpoint", hint="Give --nnodes too.")

    def num_ranks_here(self, opened: Opened) -> int:
        """One for every device in use that is on this host; ranks count through the devices in the cluster's order."""
        used = [device.host for device in opened.cluster.devices if device.name in opened.plan.devices]
        if self.nnodes == 1:
            return len(used)
        names = list(dict.fromkeys(used))
        in_turn = used == sorted(used, key=names.index)
        if len(names) == self.nnodes and in_turn:
            return used.count(names[self.node_rank])
        if len(used) % self.nnodes:
            raise InputError(
                f"the plan's {len(used)} devices, on {len(names)} hosts, cannot be told apart over {self.nnodes} hosts",
                where="--nnodes",
                hint="Start as many hosts as the plan's cluster has.",
            )
        return len(used) // self.nnodes

    def torchrun(self, num_ranks: int, module: str, words: Sequence[str]) -> list[str]:
        """The command that starts the ranks of this host."""
        command = [sys.executable, "-m", "torch.distributed.run"]
        if self.rdzv_endpoint is None:
            # By number, as a host's own name may lead nowhere.
            command += ["--standalone", "--local-addr", "127.0.0.1"]
        else:
            address, _, port = self.rdzv_endpoint.rpartition(":")
            if not address or not port.isdecimal():
                address, port = self.rdzv_endpoint.rstrip(":"), str(DEFAULT_PORT)
            command += ["--nnodes", str(self.nnodes), "--node-rank", str(self.node_rank)]
            command += ["--master-addr", address, "--master-port", port]
        return [*command, "--nproc-per-node", str(num_ranks), "-m", module, *words]


def default_threads(num_ranks: int) -> int:
    """The cores that this process may use, over the ranks."""
    return max(1, len(os.sched_getaffinity(0)) // num_ranks)
