"""A small training in which one rank fails in a given way and phase, and what `penstock train` reports about it."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import penstock

PENSTOCK = (sys.executable, "-m", "penstock")
NUM_STEPS = 6
FAULT_STEP = 3
TIMEOUT_S = 4.0
"""--timeout of every run."""
END_S = 10.0
"""All ranks must have ended this long after the fault; after a stop, --timeout later."""

KINDS = {
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
    "segfault": "os.kill(os.getpid(), signal.SIGSEGV)",
    "stop": "os.kill(os.getpid(), signal.SIGSTOP)",
    "error": "raise ValueError('the fault')",
    "abort": "os.abort()",
    "exit 0": "os._exit(0)",
    "exit 7": "os._exit(7)",
    "out of memory": "bytearray(1 << 50)",
    "out of memory in torch": "torch.empty(1 << 50)",
}
NAMED_AS = {
    "kill": "was killed by SIGKILL",
    "segfault": "was killed by SIGSEGV",
    "stop": "was stopped by a signal",
    "error": "ValueError: the fault",
    "abort": "was killed by SIGABRT",
    "exit 0": "exited with code 0",
    "exit 7": "exited with code 7",
    "out of memory": "ran out of memory",
    "out of memory in torch": "ran out of memory",
}
PHASES = {
    "start-up": "in start-up",
    "making": "while making the pipeline",
    "step": f"at step {FAULT_STEP}",
    "action": f"at step {FAULT_STEP}, in ",
    "save": f"while saving after step {FAULT_STEP}",
    "shutdown": "in shutdown",
}
SCRIPT = """
import os, signal, time
import torch
from torch import nn

RANK, WHERE = int(os.environ.get("RANK", "0")), {where!r}
calls = {{}}

def fail(where, at=0):
    calls[where] = calls.get(where, -1) + 1
    # An error in a trial of the loss is caught, so the next forward fails as well.
    if where == WHERE and RANK == {rank} and calls[where] >= at:
        with open({mark!r}, "w") as file:
            file.write(str(time.time()))
        {fault}

class Layer(nn.Linear):
    def forward(self, x):
        if self.weight.requires_grad and x.dim() == 2:
            if calls.get("step") == {fault_step}:
                fail("action", 1)
        return super().forward(x).tanh()

def make_model():
    fail("start-up")
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(8, 8) for _ in range({num_layers})))
    return model, torch.ones(4, 8), nn.functional.mse_loss, torch.ones(4, 8)

def make_batches(num_rows):
    while True:
        fail("step", {fault_step})
        yield torch.randn(num_rows, 8), torch.randn(num_rows, 8)

def make_optimizer(parameters):
    fail("making")
    return torch.optim.SGD(parameters, lr=0.1)

class Scheduler(torch.optim.lr_scheduler.ExponentialLR):
    def state_dict(self):
        fail("save", {fault_step})
        return super().state_dict()

def make_scheduler(optimizer):
    return Scheduler(optimizer, 0.9)

destroy = torch.distributed.destroy_process_group

def destroy_and_fail(*arguments):
    fail("shutdown")
    destroy(*arguments)

torch.distributed.destroy_process_group = destroy_and_fail
"""


@dataclass(frozen=True)
class Fault:
    """One fault of one rank."""

    kind: str
    phase: str
    num_ranks: int
    rank: int

    @property
    def name(self) -> str:
        """The fault in words."""
        return f"{self.kind} in {self.phase}, rank {self.rank} of {self.num_ranks}"


@dataclass(frozen=True)
class Report:
    """What became of a fault."""

    fault: Fault
    complaints: tuple[str, ...]
    """What is wrong; empty if all is well."""
    ended_s: float
    """Seconds from the fault until all processes had ended."""
    text: str


def write_plan(folder: Path, num_ranks: int, parameter_bytes: int = 288) -> Path:
    """Write a plan for a chain of small layers with a stage on each rank."""
    times = penstock.Times(
        kind="cpu-1-thread", micro_batch_size=4, forward_s=1e-3, input_grad_s=1e-3, weight_grad_s=1e-3, step_s=1e-4
    )
    sizes = penstock.Sizes(micro_batch_size=4, cut_bytes=128, saved_bytes=512)
    units = tuple(
        penstock.Unit(name=str(number), parameter_bytes=parameter_bytes, sizes=(sizes,), times=(times,))
        for number in range(2 * num_ranks)
    )
    profile = penstock.Profile(name="chain", micro_batch_size=4, units=units, input_bytes=128)
    penstock.save_profile(profile, folder / "profile.json")
    cluster = folder / "cluster.toml"
    cluster.write_text(
        f'hosts = 1\ndevices_per_host = {num_ranks}\nkind = "cpu-1-thread"\n'
        'memory = "1 GiB"\ninside = "1 GB/s, 60 us"\n'
    )
    plan = penstock.plan(
        profile,
        penstock.load_cluster(str(cluster)),
        3,
        planner="balanced",
        schedule="1f1b",
        profile_source="profile.json",
        cluster_source="cluster.toml",
    )
    path = folder / "plan.json"
    penstock.save_plan(plan, path)
    return path


def try_fault(fault: Fault, folder: Path, plan: Path) -> Report:
    """Train with a fault in an empty folder, and check what is reported and left behind."""
    mark, temporary = folder / "mark", folder / "tmp"
    temporary.mkdir()
    script = folder / "script.py"
    script.write_text(
        SCRIPT.format(
            where=fault.phase,
            rank=fault.rank,
            mark=str(mark),
            fault=KINDS[fault.kind],
            fault_step=FAULT_STEP,
            num_layers=2 * fault.num_ranks,
        )
    )
    options = ["--steps", str(NUM_STEPS), "--timeout", str(TIMEOUT_S), "--threads", "1"]
    saving = ["--checkpoint", str(folder / "checkpoints"), "--save-every", "1"]
    command = [*PENSTOCK, "train", str(script), "--plan", str(plan), *options, *saving, "-q"]
    environment = {**os.environ, "TMPDIR": str(temporary), "COLUMNS": "200", "PENSTOCK_FAULT": str(mark)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=180)
    ended_s = time.time() - float(mark.read_text()) if mark.exists() else float("nan")
    return Report(fault, tuple(_complaints(fault, done, ended_s, mark, temporary)), ended_s, done.stderr)


def _complaints(
    fault: Fault, done: subprocess.CompletedProcess[str], ended_s: float, mark: Path, temporary: Path
) -> Sequence[str]:
    text = done.stderr
    wanted = {
        "the rank": f"rank {fault.rank} ",
        "the phase": PHASES[fault.phase],
        "what happened": NAMED_AS[fault.kind],
        "the device": f"device d{fault.rank}",
        "the host": f"host {os.uname().nodename}",
    }
    found = [f"{what} is not named" for what, words in wanted.items() if words.lower() not in text.lower()]
    other = [
        rank for rank in range(fault.num_ranks) if rank != fault.rank and f"rank {rank} failed first" in text.lower()
    ]
    found += [f"rank {rank} is blamed" for rank in other]
    if not text.partition("error: ")[2].lower().startswith(("rank", str(mark.parent))):
        found.append("the error does not begin with the cause")
    if fault.kind != "error" and text.count("Last status of each rank:") != 1:
        found.append("no table of the last actions")
    if "Traceback" in text or text.count("error: ") != 1:
        found.append("not one clear message")
    if done.returncode != (2 if fault.kind == "error" else 1):
        found.append(f"exit code {done.returncode}")
    limit_s = END_S + (TIMEOUT_S if fault.kind == "stop" else 0.0)
    if not ended_s <= limit_s:
        found.append(f"ended after {ended_s:.1f} s")
    left = [path.name for path in temporary.iterdir()]
    if left:
        found.append(f"left behind: {', '.join(left)}")
    alive = [pid for pid in _processes_of(mark) if pid != os.getpid()]
    if alive:
        found.append(f"{len(alive)} processes are alive")
    return found


def _processes_of(mark: Path) -> list[int]:
    """Processes whose environment names a run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"PENSTOCK_FAULT={mark}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
