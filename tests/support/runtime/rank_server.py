"""The rank's side of a `RankPool`: a process that answers requests, and exits when it misses a deadline."""

import faulthandler
import pickle
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from tests.support.runtime.loopback_store import connect_store

READY = 0
"""The number of the answer that a process gives when it has started."""
STOP = b""
"""The message that ends a process."""


class Failure(NamedTuple):
    """Why a rank has no result: the name of the exception's class, its message, and its traceback."""

    kind: str
    message: str
    details: str


class Outcome(NamedTuple):
    """What a call gave on one rank: its result, or a `Failure`."""

    succeeded: bool
    value: Any


class Answer(NamedTuple):
    """A rank's reply to the request with the same number."""

    number: int
    outcome: Outcome


class Request(NamedTuple):
    """A function that a rank calls, and the seconds until the rank gives up."""

    number: int
    deadline_s: float
    call: bytes
    """The function and its arguments, pickled. A rank that cannot import the function answers with that error."""


def serve(rank: int, line: Connection, stacks: str, prepare: Callable[[], object]) -> None:
    """Answer requests until there are no more."""
    torch.set_num_threads(1)
    prepare()
    with Path(stacks).open("w") as file:
        line.send_bytes(pickle.dumps(Answer(READY, Outcome(True, rank))))
        with suppress(EOFError):
            while (message := line.recv_bytes()) != STOP:
                request = Request(*pickle.loads(message))
                faulthandler.dump_traceback_later(request.deadline_s, exit=True, file=file)
                line.send_bytes(_answer(request))
                faulthandler.cancel_dump_traceback_later()
    _leave_group()


def _answer(request: Request) -> bytes:
    try:
        function, arguments = pickle.loads(request.call)
        return pickle.dumps(Answer(request.number, Outcome(True, function(*arguments))))
    except BaseException as error:
        failure = Failure(type(error).__name__, str(error), traceback.format_exc())
        return pickle.dumps(Answer(request.number, Outcome(False, failure)))


def join_group(backend: str, port: int, prefix: str, rank: int, size: int, operation_s: float) -> None:
    """Replace this rank's process group; a rank beyond the size of the new one is in none."""
    _leave_group()
    if rank < size:
        store = PrefixStore(prefix, connect_store(port, operation_s))
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=operation_s)
        )


def _leave_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
