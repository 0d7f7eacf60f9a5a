"""Ranks on one machine that report the names of several hosts."""

import socket
from collections.abc import Sequence
from unittest import mock

import torch.distributed as dist

from tests.support.runtime.training import Job, Trained, train


def train_on_hosts(job: Job, hosts: Sequence[str]) -> Trained:
    """Train one rank, which reports that it is on a given host."""
    with mock.patch.object(socket, "gethostname", return_value=hosts[dist.get_rank()]):
        return train(job)
