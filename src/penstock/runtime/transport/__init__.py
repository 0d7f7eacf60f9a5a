"""Messages between ranks."""

from penstock.runtime.transport.process_groups import Lanes, backend_for, make_groups, open_lanes, open_words
from penstock.runtime.transport.shared_memory import WORTHWHILE_BYTES
from penstock.runtime.transport.transport import Mail, Pending

__all__ = ["WORTHWHILE_BYTES", "Lanes", "Mail", "Pending", "backend_for", "make_groups", "open_lanes", "open_words"]
