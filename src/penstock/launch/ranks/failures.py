"""The error that ends a rank, as an event."""

import traceback

from penstock.errors import PenstockError
from penstock.launch.runs import Failed, failed_event


def describe_failure(error: BaseException) -> Failed:
    """Return the event for an error. An error in Penstock itself is printed with its traceback."""
    if not isinstance(error, PenstockError | MemoryError):
        traceback.print_exception(error)
    return failed_event(error)
