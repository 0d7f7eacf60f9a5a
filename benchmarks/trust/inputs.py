"""Mutated inputs: no traceback, no raw control character, bounded time and memory."""

import contextlib
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import penstock
from benchmarks.results import Result
from benchmarks.trust.mutations import mutate, odd_option
from penstock.cli.main import main
from penstock.cluster.toml import write_cluster
from tests.support.topology_texts import EVERY

MAX_S, MAX_BYTES = 10.0, 1_000_000_000
NUM_INPUTS, NUM_QUICK = 20_000, 400
INPUTS_PER_PROCESS = 50
"""A process that runs several commands finds leaks, and saves imports."""


@dataclass
class Tally:
    """What was found over all inputs."""

    count: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    peak_bytes: int = 0


class Outcome(msgspec.Struct):
    """One command with one mutated input."""

    words: list[str]
    code: int
    seconds: float
    peak_bytes: int
    fault: str


def check_inputs(*, quick: bool) -> Iterator[Result]:
    """Run commands on mutated inputs."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        commands = _write_originals(Path(folder))
        total = NUM_QUICK if quick else NUM_INPUTS
        for first in range(0, total, INPUTS_PER_PROCESS):
            _run_process(Path(folder), commands, range(first, min(total, first + INPUTS_PER_PROCESS)), tally)
            if sys.stderr.isatty():
                print(f"\r{tally.count:,} of {total:,}", end="", file=sys.stderr, flush=True)
    for fault in tally.faults[:10]:
        print(f"  {fault}")
    codes = ", ".join(f"{count:,} x exit {code}" for code, count in sorted(tally.codes.items()))
    print(f"  {codes}; slowest {tally.slowest_s:.1f} s, largest {tally.peak_bytes / 1e6:.0f} MB")
    found = f"{len(tally.faults)} of {tally.count:,}"
    yield Result("mutated inputs: tracebacks, control characters, over 10 s or 1 GB", "0", found, not tally.faults)


def _write_originals(folder: Path) -> list[tuple[str, ...]]:
    """Write valid files. Return the commands that read them; a word that names a file of the folder is mutated."""
    profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=2, sequence=64)
    cluster = penstock.load_cluster("2 x 2 x T4 @ 10 GB/s / 1 GB/s")
    plan = penstock.plan(profile, cluster, 4, planner="balanced")
    evaluation = penstock.evaluate(plan, profile, cluster)
    penstock.save_profile(profile, folder / "profile.json")
    (folder / "cluster.toml").write_text(write_cluster(cluster))
    penstock.save_plan(plan, folder / "plan.json")
    penstock.save_program(evaluation.program, folder / "program.json")
    penstock.save_timeline(evaluation.timeline, folder / "timeline.json")
    sources = ("--profile", "profile.json", "--cluster", "cluster.toml")
    topologies = []
    for name, texts in EVERY.items():
        for number, text in enumerate(texts):
            (folder / f"{name}-{number}").write_text(text)
            topologies.append(("cluster", "import", f"{name}-{number}", "--kind", "T4", "-o", "out.toml"))
    return [
        ("plan", *sources, "-m", "4", "--planner", "balanced", "-o", "out.json"),
        ("plan", *sources, "-m", "?", "--planner", "balanced"),
        ("plan", "--profile", "profile.json", "--cluster", "?", "-m", "4", "--planner", "balanced"),
        ("plan", *sources, "-m", "2", "--planner", "auto", "--work", "20"),
        ("simulate", "plan.json", *sources),
        ("simulate", "plan.json", *sources, "--json"),
        ("check", "plan.json", *sources),
        ("check", "program.json"),
        ("report", "plan.json", *sources, "-o", "out.html"),
        ("report", "timeline.json", "-o", "out.html"),
        ("cluster", "show", "cluster.toml"),
        ("compare", *sources, "-m", "4", "--planners", "balanced,uniform", "--schedules", "?"),
        *topologies,
    ]


def _run_process(folder: Path, commands: list[tuple[str, ...]], numbers: range, tally: Tally) -> None:
    """Run some inputs in a process of their own, which is stopped if one takes too long."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(write, "wb", buffering=0) as out:
            for number in numbers:
                out.write(msgspec.json.encode(_run_one(folder, commands, number)) + b"\n")
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as lines:
        outcomes = [msgspec.json.decode(line, type=Outcome) for line in lines]
    _, status = os.waitpid(process, 0)
    if status:
        tally.faults.append(f"input {numbers[len(outcomes)]}: the process ended with status {status}")
    tally.count += len(numbers)
    for number, outcome in zip(numbers, outcomes, strict=False):
        tally.codes[outcome.code] = tally.codes.get(outcome.code, 0) + 1
        tally.slowest_s = max(tally.slowest_s, outcome.seconds)
        tally.peak_bytes = max(tally.peak_bytes, outcome.peak_bytes)
        if outcome.fault:
            tally.faults.append(f"input {number}: {outcome.fault}: {' '.join(outcome.words)!r:.300}")


def _run_one(folder: Path, commands: list[tuple[str, ...]], number: int) -> Outcome:
    rng = random.Random(number)
    words = list(rng.choice(commands))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        mutable = [position for position, word in enumerate(words) if (folder / word).is_file() or word == "?"]
        chosen = rng.choice(mutable)
        for position, word in enumerate(words):
            if word == "?":
                words[position] = odd_option(rng) if position == chosen else "4"
            elif position in mutable:
                path = Path(place, word)
                data = (folder / word).read_bytes()
                path.write_bytes(mutate(data, rng) if position == chosen else data)
                words[position] = str(path)
            elif word.startswith("out."):
                words[position] = str(Path(place, word))
        began_s = time.process_time()
        code, text = _call(words, Path(place))
        seconds = time.process_time() - began_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    fault = _fault(code, text, seconds, peak)
    shown = [word[:100].encode("ascii", "backslashreplace").decode() for word in words]
    return Outcome(shown, code, seconds, peak, fault)


def _call(words: list[str], place: Path) -> tuple[int, str]:
    """Call the command line with its output in a file. Return the exit code and the output."""
    output = place / "output"
    handle = os.open(output, os.O_CREAT | os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(handle, descriptor)
    os.close(handle)
    sys.argv = ["penstock", *words]
    code = -1
    with contextlib.suppress(Exception):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException as error:
            sys.stderr.write(f"Traceback {type(error).__name__}: {error}\n"[:300])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code, output.read_bytes().decode("utf-8", "surrogateescape")


def _fault(code: int, text: str, seconds: float, peak: int) -> str:
    if code not in (0, 1, 2) or "Traceback" in text:
        return f"exit {code}, {text[-200:]!r}"
    if not all(line.isprintable() for line in text.split("\n")):
        return "a control character in the output"
    if seconds > MAX_S:
        return f"{seconds:.1f} s"
    if peak > MAX_BYTES:
        return f"{peak / 1e6:.0f} MB"
    return ""
