"""Freed memory stays in the process."""

import os
import subprocess
import sys

import pytest

from penstock.model.allocator import USER_SETTINGS, keep_freed_memory

SCRIPT = """
import resource, torch
from penstock.model.allocator import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work():
    tensors = [torch.ones(1 << 24) for _ in range(3)]

def faults_of_work():
    for _ in range(6):
        work()
    before = faults()
    work()
    return faults() - before

print(faults_of_work(), int(keep_freed_memory()), faults_of_work())
"""
NUM_PAGES = 3 * (1 << 26) // 4096


def test_freed_memory_is_used_again() -> None:
    """In a process of its own: the setting cannot be read or undone, but page faults can be counted."""
    environment = {name: value for name, value in os.environ.items() if name not in (*USER_SETTINGS, "GLIBC_TUNABLES")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    before, is_kept, after = map(int, done.stdout.split())
    assert before > NUM_PAGES // 2
    assert is_kept
    assert after < NUM_PAGES // 20


@pytest.mark.parametrize("setting", [("MALLOC_TRIM_THRESHOLD_", "65536"), ("GLIBC_TUNABLES", "glibc.malloc.top_pad=1")])
def test_settings_of_the_environment_count(setting: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*setting)
    assert not keep_freed_memory()
