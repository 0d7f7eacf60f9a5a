"""Keeps the measured overhead of the runtime, which depends on the machine and not on the model.

Each machine, number of threads, and version of torch and of the runtime has a file in the user's cache directory
(`$XDG_CACHE_HOME/penstock`, or `~/.cache/penstock`). A file that cannot be read is measured again; if none can be
written, the result is kept in this process. Only steady results are kept.
"""

import hashlib
import logging
import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import torch

from penstock import io
from penstock.errors import FileError
from penstock.profiler import runtime_overhead
from penstock.profiler.runtime_overhead import MeasuredOverhead, measure_overhead

MAX_COST_S = 1.0
"""A file with more than this was not written by a measurement."""
_logger = logging.getLogger("penstock")


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that determines the overhead."""

    host: str
    cpu: str
    num_cores: int
    num_threads: int
    torch: str
    runtime: str
    """Digest of the runtime's source."""


class KeptOverhead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measured overhead and where it comes from."""

    machine: Machine
    date: str
    measured: MeasuredOverhead


_in_process: dict[Machine, KeptOverhead] = {}


def find_overhead(num_threads: int, *, remeasure: bool = False) -> KeptOverhead:
    """Return the kept overhead of this machine; measure it if there is none.

    Args:
        num_threads: Threads of a rank.
        remeasure: Whether to measure it in any case.

    Raises:
        RunError: The measurement failed.
    """
    machine = this_machine(num_threads)
    if not remeasure:
        known = _in_process.get(machine) or _read(machine)
        if known is not None:
            return known
    found = KeptOverhead(machine, datetime.now(UTC).strftime("%Y-%m-%d"), measure_overhead(num_threads))
    if found.measured.is_steady:
        _in_process[machine] = found
        _write(found)
    return found


def this_machine(num_threads: int) -> Machine:
    """Describe this machine and its software."""
    return Machine(
        host=platform.node(),
        cpu=_cpu_model(),
        num_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        num_threads=num_threads,
        torch=str(torch.__version__),
        runtime=_runtime_digest(),
    )


def cache_path(machine: Machine) -> Path:
    """Return the file of a machine."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".cache"
    name = hashlib.sha256(msgspec.json.encode(machine)).hexdigest()[:16]
    return base / "penstock" / f"runtime-overhead-{name}.json"


def _read(machine: Machine) -> KeptOverhead | None:
    try:
        path = cache_path(machine)
        if path.stat().st_uid != os.geteuid():
            return None
        kept = msgspec.json.decode(path.read_bytes(), type=KeptOverhead)
    except (OSError, RuntimeError, msgspec.DecodeError):  # RuntimeError: the user has no home
        return None
    is_plausible = all(0 < cost < MAX_COST_S for cost in msgspec.structs.astuple(kept.measured.costs))
    return kept if kept.machine == machine and kept.measured.is_steady and is_plausible else None


def _write(kept: KeptOverhead) -> None:
    try:
        path = cache_path(kept.machine)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        io.write_whole(path, msgspec.json.encode(kept))
    except (OSError, RuntimeError, FileError) as error:
        _logger.info("the runtime overhead is not kept: %s", error)


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _runtime_digest() -> str:
    """The overhead changes with the code of the runtime, which may be newer than its version."""
    package = Path(runtime_overhead.__file__).parents[1]
    files = [Path(runtime_overhead.__file__), *sorted((package / "runtime").rglob("*.py"))]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(package)}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
