"""The order of the actions as the CSV that torch.distributed.pipelining loads: a row a rank, an action a cell."""

import csv
import io
from collections.abc import Sequence
from itertools import count

from penstock.errors import InputError
from penstock.export.subject import Subject
from penstock.program import Action, Kind, parse_action


def schedule_csv(subject: Subject) -> str:
    """The compute actions of every pipeline rank, in order.

    Actions are spelled as in torch: F, I, W and B. Recomputation is a part of B there, so R is left out. The plan is
    one whose replicas have equal orders.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for devices in subject.grid.devices:
        writer.writerow([str(action) for action in subject.orders[devices[0]] if action.kind is not Kind.R])
    return text.getvalue()


def parse_schedule_csv(text: str, *, where: str) -> tuple[tuple[Action, ...], ...]:
    """Read the compute actions of every pipeline rank. Blank cells are idle steps of torch's own schedules.

    Raises:
        InputError: A cell is no compute action.
    """
    rows = []
    for number, row in enumerate(csv.reader(io.StringIO(text, newline="")), start=1):
        actions = []
        for cell in row:
            if not cell.strip():
                continue
            action = parse_action(cell.strip(), where=f"{where}:{number}")
            if not action.kind.is_pass:
                what = f"{cell.strip()[:60]!r} is not a compute action"
                raise InputError(what, where=f"{where}:{number}", hint="Write the CSV with format='compute_only'.")
            actions.append(action)
        if row:
            rows.append(tuple(actions))
    if not any(rows):
        raise InputError("the schedule has no actions", where=where)
    return tuple(rows)


def stages_of_rows(rows: Sequence[Sequence[Action]], *, where: str) -> tuple[int, ...]:
    """The pipeline rank of each stage, inferred from the rows.

    Raises:
        InputError: Two ranks have actions of one stage, or a stage has none.
    """
    rank_of: dict[int, int] = {}
    for rank, row in enumerate(rows):
        for action in row:
            if rank_of.setdefault(action.stage, rank) != rank:
                what = f"ranks {rank_of[action.stage]} and {rank} have actions of stage {action.stage}"
                raise InputError(what, where=where, hint="A stage runs on one rank.")
    missing = next(stage for stage in count() if stage not in rank_of)
    if missing < len(rank_of):
        raise InputError(f"stage {missing} has no actions", where=where)
    return tuple(rank_of[stage] for stage in range(len(rank_of)))
