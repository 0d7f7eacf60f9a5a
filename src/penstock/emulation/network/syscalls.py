"""What the kernel does for an emulation and Python has no call for (os.unshare and os.setns came with Python 3.12)."""

import ctypes
import os
import signal
from pathlib import Path

NEW_NETWORK = 0x40000000
NEW_PROCESSES = 0x20000000
NEW_USERS = 0x10000000
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(what: int) -> None:
    """Leave namespaces for new ones; that of processes holds for children only."""
    _check(_libc.unshare(what), "unshare")


def enter(file: int) -> None:
    """Go into a network namespace that is open as a file."""
    _check(_libc.setns(file, NEW_NETWORK), "setns")


def new_network() -> int:
    """Go into a new network namespace; gives it as an open file. It is gone when nobody is in it or holds the file."""
    unshare(NEW_NETWORK)
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def die_with_parent(parent: int) -> None:
    """From now on this process is killed when its parent ends, however that ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(1)  # it has ended already


def become_root_inside() -> None:
    """In a new namespace of users, and for it alone: be root there."""
    user, group = os.getuid(), os.getgid()
    unshare(NEW_USERS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(text)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
