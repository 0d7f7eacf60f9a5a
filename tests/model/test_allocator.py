"""Freed memory stays in the process. Each test runs in its own process: the setting cannot be read, page faults can."""

import os
import subprocess
import sys

import pytest

from penstock.model.allocator import USER_SETTINGS

SCRIPT = """
import resource, sys, torch
from penstock.model.allocator import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work():
    tensors = [torch.ones(1 << 24) for _ in range(3)]

kept = sys.argv[1] == "kept" and keep_freed_memory()
for _ in range(6):
    work()
before = faults()
work()
print(int(kept), faults() - before)
"""
NUM_PAGES = 3 * (1 << 26) // 4096


def run(mode: str, **settings: str) -> tuple[bool, int]:
    plain = {name: value for name, value in os.environ.items() if name not in (*USER_SETTINGS, "GLIBC_TUNABLES")}
    command = [sys.executable, "-c", SCRIPT, mode]
    done = subprocess.run(command, env={**plain, **settings}, capture_output=True, text=True, check=True, timeout=60)
    kept, faults = done.stdout.split()
    return kept == "1", int(faults)


def test_freed_memory_is_used_again() -> None:
    assert run("plain")[1] > NUM_PAGES // 2
    kept, faults = run("kept")
    assert kept
    assert faults < NUM_PAGES // 20


@pytest.mark.parametrize("setting", [("MALLOC_TRIM_THRESHOLD_", "65536"), ("GLIBC_TUNABLES", "glibc.malloc.top_pad=1")])
def test_settings_of_the_environment_count(setting: tuple[str, str]) -> None:
    assert not run("kept", **dict([setting]))[0]
