"""The hosts of a training run, and the ranks and the command of each."""

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.bundle import PlanBundle
from penstock.errors import InputError
from penstock.launch.runs import HostLink, Join, open_link, parse_endpoint, torchrun_command

RANK_PRELOAD = ("penstock.launch.ranks.train", "penstock.model", "penstock.runtime", "penstock.runtime.verify")
"""What a rank imports when it begins to train."""


@dataclass(frozen=True)
class Hosts:
    """The number of hosts, the index of this one, and the rendezvous address of their ranks."""

    nnodes: int = 1
    node_rank: int = 0
    rdzv_endpoint: str | None = None

    def __post_init__(self) -> None:
        if self.nnodes > 1 and self.rdzv_endpoint is None:
            raise InputError(
                "--nnodes > 1 requires --rdzv-endpoint",
                where="--rdzv-endpoint",
                hint="Pass the address of host 0 on every host, such as --rdzv-endpoint 10.0.0.1:29500.",
            )
        if self.node_rank >= self.nnodes:
            raise InputError(
                f"node rank {self.node_rank} must be less than the number of hosts ({self.nnodes})",
                where="--node-rank",
                hint="Hosts are numbered from 0.",
            )
        if self.nnodes == 1 and self.rdzv_endpoint is not None:
            raise InputError(
                "--rdzv-endpoint requires --nnodes > 1", where="--rdzv-endpoint", hint="Also pass --nnodes."
            )

    def num_local_ranks(self, bundle: PlanBundle) -> int:
        """The number of ranks on this host: one for each of the plan's devices here, in the cluster's order."""
        used = [device.host for device in bundle.cluster.devices if device.name in bundle.plan.devices]
        if self.nnodes == 1:
            return len(used)
        names = list(dict.fromkeys(used))
        is_grouped = used == sorted(used, key=names.index)
        if len(names) == self.nnodes and is_grouped:
            return used.count(names[self.node_rank])
        if len(used) % self.nnodes:
            raise InputError(
                f"the plan uses {len(used)} devices on {len(names)} hosts, which cannot be divided over "
                f"{self.nnodes} hosts",
                where="--nnodes",
                hint=f"Use --nnodes {len(names)}.",
            )
        return len(used) // self.nnodes

    def link(self, num_ranks: int, run: str) -> HostLink:
        """The link to the other hosts.

        Args:
            num_ranks: The number of ranks on this host.
            run: What the run trains, which must be the same on all hosts.
        """
        assert self.rdzv_endpoint is not None
        own = Join(self.node_rank, socket.gethostname(), num_ranks, run)
        return open_link(own, self.nnodes, parse_endpoint(self.rdzv_endpoint))

    def command(self, num_ranks: int, module: str, arguments: Sequence[str]) -> list[str]:
        """The standalone command that starts the ranks of this host, without `penstock train`."""
        if self.nnodes > 1:
            return self._torchrun(num_ranks, module, arguments)
        launcher = (sys.executable, "-m", "penstock.launch", "--nproc-per-node", str(num_ranks))
        return [*launcher, "-m", module, *arguments]

    def _torchrun(self, num_ranks: int, module: str, arguments: Sequence[str]) -> list[str]:
        assert self.rdzv_endpoint is not None
        return torchrun_command(
            nnodes=self.nnodes,
            node_rank=self.node_rank,
            endpoint=self.rdzv_endpoint,
            num_ranks=num_ranks,
            module=module,
            arguments=arguments,
        )


def default_threads(num_ranks: int) -> int:
    """The number of threads of a rank: the cores that this process may use, divided by the number of ranks."""
    return max(1, len(os.sched_getaffinity(0)) // num_ranks)
