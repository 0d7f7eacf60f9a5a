"""Where ranks meet, and on which interface they listen."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from penstock.dist.directory_store import DirectoryStore
from penstock.dist.rendezvous import (
    RENDEZVOUS_DIR,
    is_local,
    join_process_group,
    local_environment,
    loopback_interface,
    open_status_store,
    rank_environments,
)

VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", RENDEZVOUS_DIR, "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """None of the variables is set, and after the test all are as before."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The calls of init_process_group, which do not wait for other ranks here."""
    calls: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **options: calls.append((backend, options)))
    return calls


@pytest.mark.parametrize(
    ("local", "world", "before", "interface"),
    [
        ("2", "2", None, "lo"),
        # Ranks of several hosts must reach each other.
        ("2", "4", None, None),
        ("1", "2", None, None),
        # The user's choice comes first.
        ("2", "2", "eth7", "eth7"),
        ("2", "4", "eth7", "eth7"),
    ],
)
def test_only_ranks_of_one_host_listen_on_loopback(
    joined: list[tuple[str, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    local: str,
    world: str,
    before: str | None,
    interface: str | None,
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    monkeypatch.setenv("WORLD_SIZE", world)
    if before is not None:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", before)
    join_process_group("gloo", 7.0)
    assert os.environ.get("GLOO_SOCKET_IFNAME") == interface
    assert joined == [("gloo", {"timeout": timedelta(seconds=7)})]


def test_ranks_of_one_host_meet_in_a_file_of_their_directory(
    joined: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not is_local()
    environment = rank_environments(3, tmp_path)[1]
    for name in VARIABLES:
        monkeypatch.setenv(name, environment[name])
    assert is_local()
    join_process_group("gloo", 7.0)
    ((backend, options),) = joined
    store = options.pop("store")
    assert (backend, options) == ("gloo", {"rank": 1, "world_size": 3, "timeout": timedelta(seconds=7)})
    assert store.timeout == timedelta(seconds=7)
    store.set("key", "value")
    assert list((tmp_path / "rendezvous").iterdir())
    status = open_status_store("penstock/group")
    assert isinstance(status, DirectoryStore)
    status.set("0", "here")
    assert open_status_store("penstock/group").get("0") == b"here"
    assert not open_status_store("penstock/other").check(["0"])


def test_interfaces_of_a_local_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loopback_interface() == "lo"
    both = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    assert [local_environment(tmp_path)[name] for name in both] == ["lo", "lo"]
    # A second call is for the same directory.
    assert [local_environment(tmp_path, "eth0")[name] for name in both] == ["eth0", "eth0"]
    assert (tmp_path / "rendezvous").stat().st_mode & 0o077 == 0
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "eth0"), (2, "lo0")])
    assert loopback_interface() == "lo0"
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "eth0")])
    assert loopback_interface() is None
    assert local_environment(tmp_path).keys() == {RENDEZVOUS_DIR}


def test_ranks_are_numbered(tmp_path: Path) -> None:
    environments = rank_environments(3, tmp_path)
    assert [item["RANK"] for item in environments] == [item["LOCAL_RANK"] for item in environments] == ["0", "1", "2"]
    names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    assert {tuple(item[name] for name in names) for item in environments} == {("3", "3", "0")}
