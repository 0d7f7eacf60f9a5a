"""Exceptions that Penstock raises deliberately.

    PenstockError                 base class; the command line prints it and exits with 2 (RunError: 1)
    ├── InputError                an invalid file, option or argument (also a ValueError)
    │   ├── FileError             a file is missing, unreadable or not writable
    │   └── MismatchError         two inputs do not belong together, such as a plan and another profile
    ├── ProofError                a program cannot run; the message names the failing action
    │   ├── DeadlockError         devices wait for each other in a cycle
    │   └── MemoryLimitError      a device needs more memory than it has
    └── RunError                  a run failed; the message names rank, action, micro-batch, step and peer
        ├── RuntimeTimeout        a transfer with another rank exceeded its deadline
        └── PeerLost              another rank exited or is unreachable

`ProfileWarning` is the only warning: the trained model differs from the profiled one.

Every error states what is wrong, where, and what to do about it.
"""

from penstock.printable_text import escape_lines


class PenstockError(Exception):
    """Base class of all errors that Penstock raises deliberately.

    `str(error)` is `where: what`, with the hint on a second line. Control characters, which a name from a file may
    have, appear as escapes. Every line but the first is indented, so that no name passes for a line of Penstock's.

    Args:
        what: What is wrong, in one sentence without a final period.
        where: Location of the problem: a file with line or key path, an option, a rank. Empty if there is none.
        hint: What to do about it. Empty if there is nothing to suggest.

    Example:
        >>> print(PenstockError("no such file", where="plan.json", hint="Check the path."))
        plan.json: no such file
          Check the path.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return "\n".join(map(_shown, filter(None, (text, f"  {self.hint}" if self.hint else ""))))


MAX_SHOWN = 10_000
"""Characters of a message or hint that are shown. A name in a file can have millions."""


def _shown(text: str) -> str:
    more = len(text) - MAX_SHOWN
    lines = escape_lines(text if more <= 0 else f"{text[:MAX_SHOWN]}... ({more:,} characters more)").split("\n")
    return "\n".join([lines[0], *(line if line.startswith("  ") else f"  {line}" for line in lines[1:])])


class InputError(PenstockError, ValueError):
    """A file, an option or an argument is invalid."""


class FileError(InputError):
    """A file is missing, unreadable or not writable."""


class MismatchError(InputError):
    """Two inputs do not belong together, such as a plan and the profile of another model."""


class ProofError(PenstockError):
    """A program cannot run: an action is missing, duplicated, out of order, or depends on one that never runs."""


class DeadlockError(ProofError):
    """Devices of a program wait for each other in a cycle."""


class MemoryLimitError(ProofError):
    """A program needs more memory on a device than the device has."""


class RunError(PenstockError):
    """A distributed run failed on this rank or on another one."""


class ProfileWarning(UserWarning):
    """The trained model differs from the profiled one.

    Training results are correct; predicted times and memory do not apply.
    """


class RuntimeTimeout(RunError):  # noqa: N818
    """A send, a receive or a collective with another rank exceeded its deadline."""


class PeerLost(RunError):  # noqa: N818
    """Another rank exited or is unreachable."""


class StatusTable(str):
    """A note (`Exception.add_note`) with the last status of each rank of a failed run."""

    __slots__ = ()


class ModelLocation(str):
    """A note (`Exception.add_note`) with the layer, step and rows at which a user's model or loss raised."""

    __slots__ = ()
