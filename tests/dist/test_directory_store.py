"""A store in a directory, with the calls of torch's stores that the heartbeat uses."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.dist.directory_store import DirectoryStore


def test_values_are_replaced_and_leave_nothing_behind(tmp_path: Path) -> None:
    store, other = DirectoryStore(tmp_path / "status"), DirectoryStore(tmp_path / "status")
    for number in range(100):
        store.set("rank/0", str(number))
    assert other.get("rank/0") == b"99"
    assert len(list((tmp_path / "status").iterdir())) == 1
    assert not store.check(["rank/0", "rank/1"])
    other.set("rank/1", "x")
    assert store.check(["rank/0", "rank/1"])


def test_one_of_many_writers_wins(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        stores = [DirectoryStore(tmp_path) for _ in range(8)]
        values = list(pool.map(lambda item: item[1].compare_set("failed", "", str(item[0])), enumerate(stores)))
    assert len(set(values)) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_only_this_user_can_open_it(tmp_path: Path) -> None:
    DirectoryStore(tmp_path / "status")
    assert (tmp_path / "status").stat().st_mode & 0o077 == 0


def test_a_missing_key_is_waited_for(tmp_path: Path) -> None:
    store, other = DirectoryStore(tmp_path), DirectoryStore(tmp_path)
    timer = threading.Timer(0.1, lambda: other.set("late", "here"))
    timer.start()
    store.set_timeout(timedelta(seconds=60))
    assert store.get("late") == b"here"
    timer.join()
    store.set_timeout(timedelta(seconds=0.05))
    began_s = time.monotonic()
    with pytest.raises(RuntimeError, match="timed out"):
        store.get("none")
    assert time.monotonic() - began_s >= 0.05


def test_a_key_that_has_a_value_keeps_it(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    assert store.compare_set("first", "", "a") == b"a"
    assert store.compare_set("first", "", "b") == b"a"
    with pytest.raises(NotImplementedError):
        store.compare_set("first", "a", "b")


def test_missing_keys_and_a_missing_directory_are_runtime_errors(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "status")
    store.set_timeout(timedelta(seconds=0.05))
    with pytest.raises(RuntimeError, match=r"timed out after 0\.05 s waiting for key 'none'"):
        store.get("none")
    shutil.rmtree(tmp_path / "status")
    with pytest.raises(RuntimeError, match="status no longer exists"):
        store.check(["none"])
    with pytest.raises(RuntimeError, match="cannot write"):
        store.set("key", "value")
