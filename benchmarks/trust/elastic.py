"""Elastic training: losses and returns of devices in one run, and what copies and asynchronous saves cost a step."""

import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.results import Result
from benchmarks.trust.faulty_training import write_plan
from penstock.cli.console import Console
from penstock.launch import ElasticOptions, PlanChange, TrainOptions, TrainResult, train_elastic
from penstock.simulate import evaluate_costs

NUM_RANKS = 3
NUM_LOSSES = 20
QUICK_LOSSES = 2
STEPS_BETWEEN = 3
"""Steps with all devices before the next loss."""
STEPS_FOR_LOSS = 60
"""More steps than pass from one loss to the next. A run ends early only after the last of them."""
RETURN_AFTER_S = 0.2
RECOVERY_S = 8.0
COST = 0.05
COST_STEPS = 120
PERIOD = 8
"""Steps between two copies or saves."""
NUM_BESIDE = 4
"""So many steps, from the one with the copy or save on, may be slower; the others are what they are compared with."""
WIDTH = 512
QUICK_COST_STEPS = 32
SCRIPT = """
import os, random, signal, threading, time
import torch
from torch import nn

FOLDER, NUM_LOSSES = {folder!r}, {num_losses}
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
done = 0

def lose(number):
    with open(f"{{FOLDER}}/loss-{{number}}", "w") as file:
        file.write(str(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)

def after_step(*_):
    global done
    done += 1
    number = len([name for name in os.listdir(FOLDER) if name.startswith("loss-")])
    if number == NUM_LOSSES and WORLD == {num_ranks}:
        return
    time.sleep(0.05)
    if number < NUM_LOSSES and WORLD == {num_ranks} and RANK == number % WORLD and done == {steps_between}:
        # At a random moment of a step or between two.
        threading.Timer(random.Random(number).random() * 0.1, lose, [number]).start()

def make_model():
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Tanh()) for _ in range({num_layers}))
    return nn.Sequential(*layers), torch.ones(4, 8), nn.functional.mse_loss, torch.ones(4, 8)

def make_batches(num_rows):
    while True:
        yield torch.randn(num_rows, 8), torch.randn(num_rows, 8)

def make_optimizer(parameters):
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    optimizer.register_step_post_hook(after_step)
    return optimizer

def make_scheduler(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
"""
COST_SCRIPT = """
import os, time
import torch
from torch import nn

def make_model():
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Linear({width}, {width}), nn.Tanh()) for _ in range({num_layers}))
    return nn.Sequential(*layers), torch.ones(4, {width}), nn.functional.mse_loss, torch.ones(4, {width})

def make_batches(num_rows):
    inputs, targets = torch.randn(num_rows, {width}), torch.randn(num_rows, {width})
    while True:
        if os.environ.get("RANK", "0") == "0":
            with open({times!r}, "a") as file:
                file.write(f"{{time.perf_counter()}} {{time.process_time()}}\\n")
        yield inputs, targets
"""


def check_elastic(*, quick: bool) -> Iterator[Result]:
    """Lose and return devices in one run, repeat it without losses, and measure copies and saves."""
    num_losses = QUICK_LOSSES if quick else NUM_LOSSES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch_s = _torch_start_s()
        disturbed, lost_s = _run_with_losses(folder / "disturbed", num_losses, [])
        reference, _ = _run_with_losses(folder / "reference", 0, disturbed.changes, len(disturbed.steps))
        yield from _judge(disturbed, reference, lost_s, torch_s, num_losses)
        num_steps = QUICK_COST_STEPS if quick else COST_STEPS
        costs = {
            "a copy in memory after every step costs a step": ["--elastic", "--peer-copies", str(PERIOD)],
            "an asynchronous save costs the steps beside it": ["--save-every", str(PERIOD), "--async-save"],
        }
        for what, options in costs.items():
            cost, passed, step_s = _cost(folder / options[0].strip("-"), num_steps, options)
            measured = f"{cost:.1%} of {step_s * 1e3:.0f} ms (wall {passed:+.1%})"
            yield Result(what, f"<= {COST:.0%}", measured, cost <= COST, is_over_all=True)


def _run_with_losses(
    folder: Path, num_losses: int, changes: Sequence[PlanChange], num_steps: int | None = None
) -> tuple[TrainResult, list[float]]:
    """Train with losses, or with the changes of another run. Returns when each loss happened, too."""
    folder.mkdir()
    plan = write_plan(folder, NUM_RANKS)
    script = folder / "script.py"
    values = {"folder": str(folder), "num_losses": num_losses, "num_ranks": NUM_RANKS}
    script.write_text(SCRIPT.format(**values, steps_between=STEPS_BETWEEN, num_layers=2 * NUM_RANKS))
    steps = num_steps or STEPS_FOR_LOSS * num_losses
    options, bundle = TrainOptions(str(script), str(plan), steps=steps, threads=1, timeout=60.0).open()
    elastic = ElasticOptions(True, max_restarts=num_losses + 2, return_after=RETURN_AFTER_S)
    console = Console(quiet=True)
    result = train_elastic(console, options, elastic, evaluate_costs(bundle.costs), bundle, changes=changes)
    if result.failure is not None:
        raise result.failure
    files = sorted(folder.glob("loss-*"), key=lambda path: int(path.name.partition("-")[2]))
    return result, [float(path.read_text()) for path in files]


def _judge(
    disturbed: TrainResult, reference: TrainResult, lost_s: Sequence[float], torch_s: float, num_losses: int
) -> Iterator[Result]:
    losses = [change for change in disturbed.changes if len(change.lost)]
    returns = [change for change in disturbed.changes if not change.lost]
    counted = f"{len(losses)} and {len(returns)}"
    is_complete = len(losses) >= num_losses and len(returns) >= num_losses
    yield Result("losses and returns in one run", f"{num_losses} each", counted, is_complete)
    same = [one.loss == other.loss for one, other in zip(disturbed.steps, reference.steps, strict=True)]
    measured = f"{sum(same)} of {len(same)} steps"
    yield Result("losses bit-equal to a run that changes plans without losses", "all", measured, all(same))
    ends = [change.first_step_s for change in disturbed.changes if change.lost]
    recoveries = [min(end for end in ends if end > begin) - begin for begin in lost_s]
    worst = max(recoveries) - torch_s
    measured = f"{worst:.1f} s ({max(recoveries):.1f} s, torch {torch_s:.1f} s)"
    what = "SIGKILL to the next finished step, beyond a start with torch"
    yield Result(what, f"<= {RECOVERY_S:.0f} s", measured, worst <= RECOVERY_S)
    waited = max(change.waited_s for change in losses)
    yield Result("planning after a single loss", "0 s", f"{waited:.2f} s", waited < 0.05)
    repeated = max(change.num_lost_steps for change in disturbed.changes)
    yield Result("finished steps lost with copies after every step", "<= 1", str(repeated), repeated <= 1)


def _torch_start_s() -> float:
    """Seconds that a fresh interpreter needs to import torch here and now."""
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.monotonic() - began_s


def _cost(folder: Path, num_steps: int, options: Sequence[str]) -> tuple[float, float, float]:
    """Train with something after every `PERIOD`-th step.

    Returns:
        What it adds to the slowest of the steps beside it, in processor time and in time that passes, relative to the
        other steps; and the processor time of those.
    """
    folder.mkdir()
    plan = write_plan(folder, 2, 4 * WIDTH * (WIDTH + 1))
    times = folder / "times"
    script = folder / "script.py"
    script.write_text(COST_SCRIPT.format(times=str(times), num_layers=4, width=WIDTH))
    common = ["--steps", str(num_steps), "--threads", "1", "--global-batch-size", "768", "-q"]
    saving = ["--checkpoint", str(folder / "checkpoints")] if "--save-every" in options else []
    command = [sys.executable, "-m", "penstock", "train", str(script), "--plan", str(plan), *common, *saving, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    drawn = [tuple(map(float, line.split())) for line in times.read_text().splitlines()]
    # From one batch to the next. The work is behind the last step of each period.
    steps = list(itertools.pairwise(drawn))[PERIOD - 1 :]
    costs, plain = [], 0.0
    for clock in (0, 1):
        seconds = [end[clock] - begin[clock] for begin, end in steps]
        by_offset = [seconds[offset::PERIOD] for offset in range(PERIOD)]
        plain = statistics.median(itertools.chain(*by_offset[NUM_BESIDE:]))
        costs.append(max(map(statistics.median, by_offset[:NUM_BESIDE])) / plain - 1)
    passed, used = costs
    return used, passed, plain
