"""Deliberate faults of the runtime, which the device must find. Each patches one function in a rank."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch

from penstock.dist import Describe
from penstock.program.lowering import lowering
from penstock.program.proof import proof
from penstock.runtime.transport.process_groups import PolledWork
from penstock.runtime.transport.send_queue import SendQueue

Mutation = Callable[[], Any]


def none() -> Any:
    """No fault."""
    return nullcontext()


@contextmanager
def post_receives_ahead() -> Iterator[None]:
    """Messages stay where buffers permit them first: receives up to two micro-batches ahead. The proof looks away.
    A layer waits for the device, which is harmless otherwise."""
    with (
        mock.patch.object(lowering, "order_messages", lambda program, _costs: program),
        mock.patch.object(proof, "check_rendezvous", return_value=None),
        wait_in_forward(),
    ):
        yield


def free_send_buffers_early() -> Any:
    """The send queue keeps neither work handles nor tensors of the device."""
    add = SendQueue.add

    def mutated(queue: SendQueue, work: Any, held: torch.Tensor, describe: Describe) -> None:
        if held.is_cpu:
            add(queue, work, held, describe)

    return mock.patch.object(SendQueue, "add", mutated)


def forget_a_stream_wait() -> Any:
    """The fifth payload is used without a wait of the stream."""
    order_stream, calls = PolledWork.order_stream, []

    def mutated(work: PolledWork) -> None:
        calls.append(work)
        if len(calls) != 5:
            order_stream(work)

    return mock.patch.object(PolledWork, "order_stream", mutated)


def wait_in_forward() -> Any:
    """A layer waits for the whole device."""
    forward = torch.nn.Tanh.forward

    def mutated(layer: torch.nn.Tanh, x: torch.Tensor) -> torch.Tensor:
        torch.accelerator.synchronize()
        return forward(layer, x)

    return mock.patch.object(torch.nn.Tanh, "forward", mutated)
