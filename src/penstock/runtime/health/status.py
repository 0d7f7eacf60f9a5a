"""The status of a rank, and the table with the last status of every rank."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

BEAT_S = 0.5
SILENT_S = 3 * BEAT_S
"""A rank without a heartbeat for this long has exited or is stopped."""


@dataclass(frozen=True)
class RankStatus:
    """What a rank does at a moment."""

    step: int
    activity: str
    for_s: float
    """Since when, in seconds."""
    is_busy: bool
    """Whether the rank is inside a step, so that other ranks may depend on it."""


@dataclass(frozen=True)
class StatusRecord:
    """The status that a rank wrote last."""

    status: RankStatus
    written_s: float
    is_final: bool
    """Whether it was written after a failure, so that no heartbeat follows."""

    def encode(self) -> str:
        """Return the record as text for the store."""
        status = self.status
        fields = [status.step, status.activity, status.for_s, status.is_busy, self.written_s, self.is_final]
        return json.dumps(fields)

    @classmethod
    def decode(cls, text: str | bytes) -> "StatusRecord":
        """Read what `encode` returned."""
        *status, written_s, is_final = json.loads(text)
        return cls(RankStatus(*status), written_s, is_final)


def format_status_table(devices: Sequence[str], records: Sequence[StatusRecord | None], now_s: float) -> str:
    """Return the status table: the last status of each rank."""
    rows = [("rank", "device", "step", "status", "for", "")]
    for rank, (device, item) in enumerate(zip(devices, records, strict=True)):
        if item is None:
            rows.append((str(rank), device, "-", "no heartbeat", "", ""))
            continue
        status, silent_s = item.status, now_s - item.written_s
        step = "-" if status.step < 0 else str(status.step)
        is_gone = silent_s > SILENT_S and not item.is_final
        duration = "" if is_gone else f"{status.for_s:.1f} s"
        note = f"last heartbeat {silent_s:.1f} s ago; exited or stopped since" if is_gone else ""
        rows.append((str(rank), device, step, status.activity, duration, note))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(["Last status of each rank:", *(f"  {line}" for line in lines)])
