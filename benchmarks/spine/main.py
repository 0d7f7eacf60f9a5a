"""Speed of lowering, proof, simulation and the command line, against the targets in README.md.

    python benchmarks/spine/main.py            all sizes, about two minutes
    python benchmarks/spine/main.py --quick    a smaller run, under 50 seconds

Prints one line per target with the measurement and `ok` or `short`. Exits with 1 if a target is missed.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.cluster import Cluster, Device, Host, Wire
from penstock.plan.pricing import Costs, price
from penstock.planners import plan
from penstock.profile import Profile, Sizes, Times, Unit
from penstock.program import Program
from penstock.program.lowering import lower
from penstock.program.proof import prove
from penstock.schedules import schedule
from penstock.simulate import predict, predict_plainly, simulate, simulate_plainly

PENSTOCK = Path(sys.executable).with_name("penstock")
EXAMPLE = Path(__file__).parents[2] / "examples" / "clusters" / "one-host.toml"


class Result(NamedTuple):
    """One target with its measurement."""

    what: str
    target: str
    measured: str
    reached: bool


def problem(num_devices: int) -> tuple[Profile, Cluster]:
    """A chain of unequal layers, one per device, with links of finite speed and memory limits that are met."""
    random = np.random.default_rng(num_devices)
    seconds = random.uniform(0.8e-3, 1.2e-3, (num_devices, 3)).tolist()
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=1 << 20,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=1 << 20, saved_bytes=1 << 24),),
            times=(Times(kind="k", micro_batch_size=1, forward_s=f, input_grad_s=i, weight_grad_s=w, step_s=1e-4),),
        )
        for number, (f, i, w) in enumerate(seconds)
    )
    wire = Wire(bandwidth=25e9, latency_s=5e-6)
    devices = tuple(
        Device(name=f"d{number}", host="h", kind="k", memory_bytes=1 << 36) for number in range(num_devices)
    )
    return Profile(name="chain", micro_batch_size=1, units=units), Cluster(
        name="row", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire
    )


def priced(num_devices: int, num_microbatches: int, name: str) -> Costs:
    profile, cluster = problem(num_devices)
    chosen = plan(profile, cluster, num_microbatches, planner="uniform", schedule=name)
    return price(chosen, profile, cluster)


def seconds_of(work: Callable[[], object], repeats: int) -> float:
    """The median time of a call."""
    times = []
    for _ in range(repeats):
        start_time = time.perf_counter()
        work()
        times.append(time.perf_counter() - start_time)
    return statistics.median(times)


def twins(repeats: int) -> Iterator[Result]:
    """64 stages x 512 micro-batches with F, I, W, links and memory."""
    costs = priced(64, 512, "zb_h1")
    lowered = lower(schedule(costs), costs)
    proof = prove(lowered, costs)
    simulate(proof)
    # In turns, so that both see the same machine. The target is about the ratio.
    plain, fast = [], []
    for _ in range(repeats):
        plain.append(seconds_of(lambda: simulate_plainly(lowered, costs), 1))
        fast.append(seconds_of(lambda: simulate(proof), 5))
    ratio = statistics.median(slow / quick for slow, quick in zip(plain, fast, strict=True))
    yield Result(
        "compiled twin over reference, 64 x 512 F I W", ">= 50 x", f"{ratio:.0f} x (of {plain[0]:.2f} s)", ratio >= 50
    )
    best = statistics.median(fast)
    yield Result("compiled twin, 64 x 512 F I W", "< 30 ms", f"{best * 1e3:.1f} ms", best < 0.03)
    timeline, (start, end) = simulate(proof), simulate_plainly(lowered, costs)
    same = np.array_equal(timeline.start_s, start) and np.array_equal(timeline.end_s, end)
    yield Result("both give the same times, to the bit", "equal", "equal" if same else "not equal", bool(same))


def intervals() -> Iterator[Result]:
    """A predicted interval for 64 stages x 512 micro-batches from 20 perturbed simulations."""
    profile, _ = problem(64)
    costs = priced(64, 512, "1f1b")
    proof = prove(lower(schedule(costs), costs), costs)
    few = predict(proof, profile, num_samples=2)
    same = np.array_equal(few.samples_s, predict_plainly(proof, profile, num_samples=2).samples_s)
    start_s = time.process_time()
    predict(proof, profile, num_samples=20)
    took_s = time.process_time() - start_s
    yield Result("interval, 64 x 512 x 20 samples, processor time", "< 1 s", f"{took_s:.2f} s", took_s < 1)
    yield Result("interval with and without compiled code", "equal", "equal" if same else "not equal", bool(same))


def large(sizes: list[tuple[int, int]]) -> Iterator[Result]:
    """Lowering, proof and simulation of growing programs. The target is about the last."""
    actions, seconds = [], []
    for num_devices, num_microbatches in sizes:
        costs = priced(num_devices, num_microbatches, "1f1b")
        program = schedule(costs)
        compute = program.num_actions
        # The faster of two, which has less of the machine's other work in it.
        took = min(_pass(program, costs) for _ in range(2))
        actions.append(lower(program, costs).num_actions)
        seconds.append(took)
        print(
            f"  {num_devices:5} devices x {num_microbatches:5} micro-batches: {compute:>10,} compute actions, "
            f"{actions[-1]:>10,} in all, {took:7.2f} s, {took / actions[-1] * 1e6:5.2f} us each",
            flush=True,
        )
        del program, costs
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    what = f"{sizes[-1][0]:,} devices x {sizes[-1][1]:,} micro-batches"
    yield Result(f"lower, prove, simulate {what}", "< 60 s", f"{seconds[-1]:.1f} s", seconds[-1] < 60)
    yield Result(f"memory for {what}", "< 8 GiB", f"{memory / 2**30:.2f} GiB", memory < 8 * 2**30)
    # Seconds = c * actions ** power: linear growth has power 1. Sorting messages adds a logarithm.
    power, _ = np.polyfit(np.log(actions), np.log(seconds), 1)
    yield Result("growth of time with actions", "power <= 1.15", f"power {power:.2f}", bool(power <= 1.15))


def _pass(program: Program, costs: Costs) -> float:
    start_time = time.perf_counter()
    simulate(prove(lower(program, costs), costs))
    return time.perf_counter() - start_time


def command_line(repeats: int) -> Iterator[Result]:
    """Times of whole processes with a warm cache."""

    def run(*words: str) -> Callable[[], object]:
        return lambda: subprocess.run([str(PENSTOCK), *words], check=True, capture_output=True)

    helping = run("--help")
    planning = run("plan", "--profile", "vgg16", "--micro-batch-size", "32", "--cluster", str(EXAMPLE), "-m", "16")
    helping(), planning()
    took = seconds_of(helping, repeats)
    yield Result("penstock --help", "< 0.3 s", f"{took:.2f} s", took < 0.3)
    took = seconds_of(planning, repeats)
    yield Result("penstock plan, VGG16 on 8 devices", "< 1.5 s", f"{took:.2f} s", took < 1.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run, under 50 seconds")
    quick = parser.parse_args().quick
    sizes = [(128, 256), (256, 256), (256, 512), (512, 512)] + ([] if quick else [(512, 1024), (1024, 2048)])
    results: list[Result] = []
    for part in (command_line(3 if quick else 7), twins(1 if quick else 5), intervals(), large(sizes)):
        for result in part:
            results.append(result)
            verdict = "ok" if result.reached else "short"
            print(f"{result.what:58} target {result.target:14} measured {result.measured:22} {verdict}", flush=True)
    return 0 if all(result.reached for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
