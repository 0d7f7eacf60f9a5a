"""System calls that Python lacks (os.unshare and os.setns need Python 3.12)."""

import ctypes
import os
from pathlib import Path

NEW_NETWORK = 0x40000000
NEW_PROCESSES = 0x20000000
NEW_USERS = 0x10000000

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(what: int) -> None:
    """Move this process into new namespaces. A new PID namespace applies to its children only."""
    _check(_libc.unshare(what), "unshare")


def enter_namespace(file: int) -> None:
    """Enter a network namespace, given as an open file."""
    _check(_libc.setns(file, NEW_NETWORK), "setns")


def new_network() -> int:
    """Enter a new network namespace. Return it as an open file.

    The namespace disappears when no process is in it and the file is closed.
    """
    unshare(NEW_NETWORK)
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def become_root_inside() -> None:
    """Enter a new user namespace, and become root inside it."""
    user, group = os.getuid(), os.getgid()
    unshare(NEW_USERS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(text)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
