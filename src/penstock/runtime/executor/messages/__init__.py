"""The messages of a rank's actions: their peers and tags, sends and receives, and inputs joined from what arrives."""

from penstock.runtime.executor.messages.backward_inputs import BackwardInputs
from penstock.runtime.executor.messages.p2p import RECEIVED, SENT, receive, send
from penstock.runtime.executor.messages.routing import Message, Routing
from penstock.runtime.executor.messages.stage_inputs import gather_forward, gather_gradients

__all__ = [
    "RECEIVED",
    "SENT",
    "BackwardInputs",
    "Message",
    "Routing",
    "gather_forward",
    "gather_gradients",
    "receive",
    "send",
]
