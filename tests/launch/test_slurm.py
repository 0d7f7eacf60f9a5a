"""The hosts of a Slurm step, and the script for sbatch."""

import pytest

from penstock.errors import InputError
from penstock.launch.hosts import Hosts
from penstock.launch.slurm import first_host, sbatch_script, slurm_hosts

STEP = {
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "gpu[07-09]",
    "SLURM_NODEID": "2",
}


def test_a_step_of_several_hosts() -> None:
    assert slurm_hosts(STEP) == Hosts(3, 2, "gpu07:23456")
    without = {name: value for name, value in STEP.items() if name != "SLURM_STEP_NODELIST"}
    assert slurm_hosts({**without, "SLURM_JOB_NODELIST": "a,b,c"}) == Hosts(3, 2, "a:23456")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        # One host needs no rendezvous.
        {**STEP, "SLURM_STEP_NUM_NODES": "1"},
        # The batch script itself runs on the first host only, outside of any step.
        {"SLURM_JOB_ID": "1", "SLURM_NNODES": "3", "SLURM_NODEID": "0", "SLURM_PROCID": "0"},
    ],
)
def test_other_environments(environment: dict[str, str]) -> None:
    assert slurm_hosts(environment) is None


def test_several_tasks_on_a_host() -> None:
    with pytest.raises(InputError, match="the Slurm step has 12 tasks on 3 hosts"):
        slurm_hosts({**STEP, "SLURM_STEP_NUM_TASKS": "12"})


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("n[001-004,009]", "n001"),
        ("n[5,7],login", "n5"),
        ("rack[1-2]-n", "rack1-n"),
        ("a-b.c[10-12]", "a-b.c10"),
    ],
)
def test_the_first_host(names: str, first: str) -> None:
    assert first_host(names) == first


def test_a_list_without_hosts() -> None:
    with pytest.raises(InputError, match="is not a list of hosts"):
        first_host("")


def test_the_script() -> None:
    text = sbatch_script(["a b.py", "--plan", "p.json"], 2, 4, threads=3, uses_accelerators=True)
    assert text.startswith("#!/bin/bash\n#SBATCH ")
    for line in ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=12", "--gpus-per-node=4", "--signal=USR1@120"):
        assert f"#SBATCH {line}\n" in text
    assert text.endswith("srun penstock train 'a b.py' --plan p.json\n")
    assert "gpus" not in sbatch_script([], 1, 1, threads=1, uses_accelerators=False)
