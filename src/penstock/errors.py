"""The errors that Penstock raises on purpose.

    PenstockError                 everything below; the command line prints it and exits with 2 (RunError: 1)
    ├── InputError                a file, an option or an argument says something it must not (also a ValueError)
    │   ├── FileError             a file is missing, cannot be read, or cannot be written
    │   └── MismatchError         two inputs that do not belong together, such as a plan and another profile
    ├── ProofError                a program that cannot run; it names the action that breaks
    │   ├── DeadlockError         devices that would wait for each other for ever
    │   └── MemoryLimitError      a device that would need more memory than it has
    └── RunError                  a run that cannot go on; it names rank, action, micro-batch, step and peer
        ├── RuntimeTimeout        something that another rank should have sent or taken did not come in time
        └── PeerLost              another rank has ended, or cannot be reached

Beside them there is one warning, ProfileWarning: what is trained is not what was profiled.

Every error says what is wrong, where, and what to do about it.
"""


class PenstockError(Exception):
    """Something that the user can mend: `what` is wrong, `where` it is, and a `hint` of what to do."""

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  {self.hint}" if self.hint else text


class InputError(PenstockError, ValueError):
    """A file, an option or an argument says something it must not."""


class FileError(InputError):
    """A file is missing, cannot be read, or cannot be written."""


class MismatchError(InputError):
    """Two inputs that do not belong together."""


class ProofError(PenstockError):
    """A program that cannot run as it stands."""


class DeadlockError(ProofError):
    """Devices that would wait for each other for ever."""


class MemoryLimitError(ProofError):
    """A device that would need more memory than it has."""


class RunError(PenstockError):
    """A run that cannot go on."""


class ProfileWarning(UserWarning):
    """What is trained is not what was profiled: the numbers are right, what was predicted does not hold."""


class RuntimeTimeout(RunError):  # noqa: N818
    """Something that another rank should have sent or taken did not come in time."""


class PeerLost(RunError):  # noqa: N818
    """Another rank has ended, or cannot be reached."""
