"""Compiles the test device into build/late_device, once for each version of its sources and of torch.

Needs g++ and the headers of Python (`sh scripts/compiler.sh` installs both). Processes that need it at the same time
wait for the one that compiles.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils import cpp_extension

from tests.support.paths import REPOSITORY

NAME = "late_device"
SOURCES = Path(__file__).with_name("csrc")
FOLDER = REPOSITORY / "build" / NAME
NUM_COMPILERS = 2
COMPILE = ("-O1", "-std=c++20", "-fPIC", "-fvisibility=hidden", f"-DTORCH_EXTENSION_NAME={NAME}")
LINK = ("-shared", "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10")


class CompilerError(Exception):
    """The device cannot be compiled."""


def build() -> Path:
    """Return the compiled module. Compile it if that has not been done for these sources and this torch."""
    target = FOLDER / _digest([torch.__version__, sys.version, *COMPILE], sorted(SOURCES.iterdir())) / f"{NAME}.so"
    with _locked():
        if not target.exists():
            _compile(target)
    return target


@contextmanager
def _locked() -> Iterator[None]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(target: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        raise CompilerError("g++ is not installed; run: sh scripts/compiler.sh")
    objects = FOLDER / "objects"
    objects.mkdir(exist_ok=True)
    headers = sorted(SOURCES.glob("*.h"))
    system = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    include = [f"-I{SOURCES}", *(f"-isystem{path}" for path in system)]

    def compile_one(source: Path) -> Path:
        result = objects / f"{source.stem}-{_digest([torch.__version__, sys.version, *COMPILE], [source, *headers])}.o"
        if not result.exists():
            partial = result.with_suffix(".partial")
            _run([compiler, *COMPILE, *include, "-c", str(source), "-o", str(partial)])
            partial.rename(result)
        return result

    with ThreadPoolExecutor(NUM_COMPILERS) as pool:
        compiled = list(pool.map(compile_one, sorted(SOURCES.glob("*.cpp"))))
    target.parent.mkdir(exist_ok=True)
    partial = target.with_suffix(".partial")
    libraries = [f"-L{path}" for path in cpp_extension.library_paths()]
    rpaths = [f"-Wl,-rpath,{path}" for path in cpp_extension.library_paths()]
    _run([compiler, *map(str, compiled), *libraries, *rpaths, *LINK, "-o", str(partial)])
    partial.rename(target)


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CompilerError(f"{' '.join(command)}\n{result.stderr}")


def _digest(texts: Sequence[str], files: Sequence[Path]) -> str:
    digest = hashlib.sha256("\0".join(texts).encode())
    for file in files:
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    build()
