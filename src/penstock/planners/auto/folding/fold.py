"""Folding: a symmetric cluster as a smaller one, in which a device stands for a whole class of equal devices.

Where all devices and hosts are alike, `factor` devices can do the same work at the same time, each with its part of the
rows. A folded problem has one device for each such class: its passes take as long as those of a member, with the
member's rows, and its links are those between members. Members of two classes meet one to one, member k of one class
and member k of the other. So an order of the folded plan, run by every member, takes exactly as long in the whole
cluster, except for all-reduces: the folded plan contains those between classes; those within a class are added to the
optimizer step.

Classes are either neighbours in the cluster, so that gradients stay within a host, or spread at equal distances, so
that activations do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np

from penstock.cluster import Cluster, Device, Host
from penstock.plan import Plan, Replica, Stage
from penstock.planners.costs import GroupCosts
from penstock.planners.problem import Problem
from penstock.profile import Profile, Sizes, Times, fit
from penstock.program import Program, program_from_arrays

Layout = Literal["together", "apart"]


@dataclass(frozen=True, eq=False)
class Fold:
    """A folded problem.

    Attributes:
        problem: The smaller problem.
        origin: The whole problem.
        members: Over devices of the smaller problem: the devices of the whole one that they stand for.
    """

    problem: Problem
    origin: Problem
    members: tuple[tuple[int, ...], ...]

    @property
    def factor(self) -> int:
        """How many devices a device stands for."""
        return len(self.members[0])

    def expand(self, plan: Plan) -> Plan:
        """The plan of the whole cluster."""
        stages = tuple(self._stage(stage) for stage in plan.stages)
        return self.origin.with_stages(msgspec.structs.replace(plan, stages=stages))

    def expand_program(self, program: Program, plan: Plan) -> Program:
        """The program in which every member runs the actions of its class."""
        class_of = np.full(self.origin.cluster.num_devices, -1)
        for number, members in enumerate(self.members):
            class_of[list(members)] = number
        counts = np.diff(program.offsets)[class_of]
        first = np.cumsum(counts) - counts
        rows = np.arange(int(counts.sum())) - np.repeat(first, counts) + np.repeat(program.offsets[class_of], counts)
        names = [device.name for device in self.origin.cluster.devices]
        return program_from_arrays(
            plan, names, counts, program.kind[rows], program.stage[rows], program.microbatch[rows]
        )

    def _stage(self, stage: Stage) -> Stage:
        forward = self._group(stage.forward)
        backward = self._group(stage.backward) if stage.has_remote_backward else forward
        return msgspec.structs.replace(stage, forward=forward, backward=backward)

    def _group(self, group: Sequence[Replica]) -> tuple[Replica, ...]:
        """The first members of all classes, then the second ones, so that they have the rows of their neighbours."""
        index, devices = self.problem.cluster.index, self.origin.cluster.devices
        return tuple(
            Replica(devices[self.members[index[replica.device]][member]].name, replica.share / self.factor)
            for member in range(self.factor)
            for replica in group
        )


def is_symmetric(problem: Problem) -> bool:
    """Whether all devices, hosts and links are alike, and every device is to be used."""
    cluster, first = problem.cluster, problem.cluster.devices[0]
    if problem.pipeline_depth is not None or cluster.links or problem.profile.restrictions:
        return False
    if any(
        (device.kind, device.speed, device.memory_bytes) != (first.kind, first.speed, first.memory_bytes)
        for device in cluster.devices
    ):
        return False
    hosts = {(host.inside, host.interface_bandwidth) for host in cluster.hosts}
    per_host = _per_host(cluster)
    return len(hosts) == 1 and per_host > 0


def folds(problem: Problem, sizes: Sequence[int], *, part_rows: bool = True) -> Iterator[Fold]:
    """Fold a symmetric problem.

    Args:
        problem: The problem.
        sizes: The numbers of devices of the folded problems. Those that do not divide the cluster evenly are skipped.
        part_rows: Whether members may get a part of a row.
    """
    num, per_host = problem.cluster.num_devices, _per_host(problem.cluster)
    for size in sizes:
        factor = num // size
        if num % size or factor < 2 or (not part_rows and problem.rows_per_microbatch % factor):
            continue
        if factor % per_host == 0 or per_host % factor == 0:
            yield _fold(problem, size, "together")
        if size > 1 and per_host > 1 and (size % per_host == 0 or per_host % size == 0):
            yield _fold(problem, size, "apart")


def _per_host(cluster: Cluster) -> int:
    """Devices of a host, if all hosts have as many, one after the other; else 0."""
    per_host, rest = divmod(cluster.num_devices, len(cluster.hosts))
    expected = np.arange(cluster.num_devices) // max(per_host, 1)
    return per_host if rest == 0 and bool((cluster.host_index == expected).all()) else 0


def _fold(problem: Problem, size: int, layout: Layout) -> Fold:
    cluster = problem.cluster
    factor = cluster.num_devices // size
    devices = np.arange(cluster.num_devices)
    members = devices.reshape(size, factor) if layout == "together" else devices.reshape(factor, size).T
    per_host = _per_host(cluster)
    if layout == "together":
        on_a_host, of_a_class = max(1, per_host // factor), min(factor, per_host)
    else:
        on_a_host, of_a_class = min(size, per_host), max(1, per_host // size)
    interface = cluster.hosts[0].interface_bandwidth
    hosts = tuple(
        Host(
            name=f"h{number}",
            inside=cluster.hosts[0].inside,
            interface_bandwidth=None if interface is None else interface / of_a_class,
        )
        for number in range(size // on_a_host)
    )
    like = cluster.devices[0]
    folded = Cluster(
        name=cluster.name,
        hosts=hosts,
        devices=tuple(
            Device(
                name=f"g{number}",
                host=f"h{number // on_a_host}",
                kind=like.kind,
                memory_bytes=like.memory_bytes,
                speed=like.speed,
            )
            for number in range(size)
        ),
        between=cluster.between,
    )
    profile, rows = _member_profile(problem, members[0].tolist())
    smaller = replace(problem, profile=profile, cluster=folded, micro_batch_size=rows)
    return Fold(smaller, problem, tuple(tuple(row) for row in members.tolist()))


def _member_profile(problem: Problem, members: Sequence[int]) -> tuple[Profile, int]:
    """The profile with the rows of a member, and its rows of a micro-batch.

    Rows are counted in parts where members do not get whole ones.
    """
    profile, rows, factor = problem.profile, problem.rows_per_microbatch, len(members)
    num, parts = (rows // factor, 1) if rows % factor == 0 else (rows, factor)
    price = GroupCosts(problem).reduce_price(members)
    fitted = {
        kind: [(count, fit(profile, kind).at(count / parts)) for count in (num, 2 * num)] for kind in profile.kinds
    }
    units = []
    for index, unit in enumerate(profile.units):
        times = tuple(
            Times(
                kind=kind,
                micro_batch_size=count,
                forward_s=float(costs.forward_s[index]),
                input_grad_s=float(costs.input_grad_s[index]),
                weight_grad_s=float(costs.weight_grad_s[index]),
                step_s=float(costs.step_s[index]) + price.seconds_per_byte * unit.trained_bytes,
            )
            for kind, points in fitted.items()
            for count, costs in points
        )
        sizes = tuple(
            Sizes(
                micro_batch_size=count,
                cut_bytes=round(float(costs.cut_bytes[index])),
                saved_bytes=round(float(costs.saved_bytes[index])),
                pending_bytes=round(float(costs.pending_bytes[index])),
            )
            for count, costs in fitted[profile.kinds[0]]
        )
        units.append(msgspec.structs.replace(unit, times=times, sizes=sizes))
    input_bytes = round(profile.input_bytes * num / parts / profile.micro_batch_size)
    folded = msgspec.structs.replace(profile, units=tuple(units), micro_batch_size=num, input_bytes=input_bytes)
    return folded, num
