"""Slurm: the hosts of a job step, from its environment, and a script for sbatch."""

import re
import shlex
from collections.abc import Mapping, Sequence

from penstock.errors import InputError
from penstock.launch.hosts import Hosts

FIRST_PORT = 20000
NUM_PORTS = 10000
SIGNAL_S = 120
"""The script asks Slurm for SIGUSR1 this long before the time limit."""
_FIRST_NAME = re.compile(r"([^,\[\]]+)(?:\[([0-9]+)[^\]]*\])?([^,\[\]]*)")


def slurm_hosts(environment: Mapping[str, str]) -> Hosts | None:
    """The hosts of the job step that runs this command. None outside of a step of several hosts.

    Args:
        environment: The environment variables, which srun sets for every task.

    Raises:
        InputError: A host has several tasks.
    """
    if int(environment.get("SLURM_STEP_NUM_NODES", "1")) < 2 or "SLURM_NODEID" not in environment:
        return None
    nnodes, num_tasks = int(environment["SLURM_STEP_NUM_NODES"]), int(environment.get("SLURM_STEP_NUM_TASKS", "0"))
    if num_tasks > nnodes:
        raise InputError(
            f"the Slurm step has {num_tasks} tasks on {nnodes} hosts; penstock train starts the ranks of a host itself",
            where="SLURM_STEP_NUM_TASKS",
            hint="Start one task on each host: srun --ntasks-per-node=1 penstock train ...",
        )
    names = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    # Jobs that share a host need different ports.
    job = re.sub(r"\D", "", environment.get("SLURM_JOB_ID", "")) or "0"
    endpoint = f"{first_host(names)}:{FIRST_PORT + int(job) % NUM_PORTS}"
    return Hosts(nnodes, int(environment["SLURM_NODEID"]), endpoint)


def first_host(names: str) -> str:
    """The first host of a list as Slurm writes it.

    >>> first_host("gpu[07-09,12],login1"), first_host("a,b"), first_host("rack[1-2]-n")
    ('gpu07', 'a', 'rack1-n')
    """
    match = _FIRST_NAME.match(names)
    if match is None:
        raise InputError(f"{names[:60]!r} is not a list of hosts", where="SLURM_STEP_NODELIST")
    return f"{match[1]}{match[2] or ''}{match[3]}"


def sbatch_script(
    arguments: Sequence[str], hosts: int, num_ranks: int, *, threads: int, uses_accelerators: bool
) -> str:
    """A script for sbatch that trains on several hosts.

    Args:
        arguments: The arguments of `penstock train`.
        hosts: The number of hosts.
        num_ranks: The number of ranks on each host.
        threads: The number of threads of a rank.
        uses_accelerators: Whether each rank has a GPU.
    """
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=penstock",
        f"#SBATCH --nodes={hosts}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --cpus-per-task={num_ranks * threads}",
        *([f"#SBATCH --gpus-per-node={num_ranks}"] if uses_accelerators else []),
        f"#SBATCH --signal=USR1@{SIGNAL_S}",
        "# Slurm sends SIGUSR1 before the time limit. Training then finishes the step, saves, and exits; submit this",
        "# script again to go on. Add --time, --partition and --account as your cluster requires.",
        f"srun {shlex.join(['penstock', 'train', *arguments])}",
    ]
    return "\n".join(lines) + "\n"
