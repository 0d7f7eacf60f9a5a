"""Small random changes of a plan, for searches. Every change gives a complete and valid plan.

Changes shift a cut, swap two devices, move a device from one group to another, add an idle device to a group, split a
stage or merge two, make the backward of some layers at a cut remote (two sets of cuts) or local again, and switch
recomputation of a stage, or its sharded optimizer, on or off.
"""

import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from penstock.plan import Group, Plan, Replica, Stage

STEPS = (-1, 1, -2, 2, -4, 4)
Shares = Callable[[Sequence[str]], Group | None]
"""Makes the group of some devices with shares by speed; None if a device is too slow to get any rows."""


class Moves:
    """Draws random changes of plans; the same seed draws the same changes.

    Args:
        seed: Seed of the random numbers.
        devices: Names of the devices to use.
        group_of: Makes groups with shares.
        replication: Whether changes may replicate stages.
        remote_backward: Whether changes may make backwards remote.
        virtual_stages: Whether changes may put several stages on a device.
        recomputation: Whether changes may switch recomputation.
        sharded_optimizer: Whether changes may switch sharded optimizers.
    """

    def __init__(
        self,
        seed: int,
        devices: Sequence[str],
        group_of: Shares,
        *,
        replication: bool = True,
        remote_backward: bool = True,
        virtual_stages: bool = True,
        recomputation: bool = True,
        sharded_optimizer: bool = False,
    ) -> None:
        self._random = random.Random(seed)
        self._devices = list(devices)
        self._group_of = group_of
        self._virtual_stages = virtual_stages
        self._kinds = [self._shift, self._shift, self._shift, self._swap, self._split, self._merge]
        if recomputation:
            self._kinds += [self._recompute]
        if sharded_optimizer:
            self._kinds += [self._shard]
        if replication:
            self._kinds += [self._lend, self._lend, self._join]
        if remote_backward:
            self._kinds += [self._make_remote, self._make_remote, self._make_local]

    def draw(self, plan: Plan) -> Plan | None:
        """Make one random change of a plan; None if the drawn change is impossible."""
        stages = self._random.choice(self._kinds)(list(plan.stages))
        if stages is None:
            return None
        return msgspec.structs.replace(plan, stages=tuple(_joined(stages)))

    def _shift(self, stages: list[Stage]) -> list[Stage] | None:
        if len(stages) < 2:
            return None
        index = self._random.randrange(1, len(stages))
        left, right = stages[index - 1], stages[index]
        cut = left.stop + self._random.choice([-8, -4, -2, -1, -1, 1, 1, 2, 4, 8])
        if not left.start < cut < right.stop:
            return None
        stages[index - 1] = msgspec.structs.replace(left, stop=cut)
        stages[index] = msgspec.structs.replace(right, start=cut)
        return stages

    def _swap(self, stages: list[Stage]) -> list[Stage] | None:
        """Exchange two devices in all stages."""
        if len(self._devices) < 2:
            return None
        one, other = self._random.sample(self._devices, 2)
        names = {one: other, other: one}

        def renamed(group: Group) -> Group:
            return self._shared([names.get(replica.device, replica.device) for replica in group], group)

        changed = [
            msgspec.structs.replace(item, forward=renamed(item.forward), backward=renamed(item.backward))
            if item.has_remote_backward
            else _with_group(item, renamed(item.forward))
            for item in stages
        ]
        return changed if changed != stages else None

    def _shared(self, names: list[str], before: Group) -> Group:
        if len(names) == 1:
            return (Replica(names[0], 1.0),)
        group = self._group_of(names)
        return group if group is not None else before

    def _lend(self, stages: list[Stage]) -> list[Stage] | None:
        """Move a device from one group to another."""
        local_stages = [index for index, item in enumerate(stages) if not item.has_remote_backward]
        if len(local_stages) < 2:
            return None
        source, target = self._random.sample(local_stages, 2)
        if len(stages[source].forward) < 2:
            return None
        names = [replica.device for replica in stages[source].forward]
        device = names.pop(self._random.randrange(len(names)))
        target_names = [replica.device for replica in stages[target].forward]
        if device in target_names:
            return None
        return self._regrouped(stages, {source: names, target: [*target_names, device]})

    def _join(self, stages: list[Stage]) -> list[Stage] | None:
        """Add an idle device to a group."""
        used = {replica.device for item in stages for replica in (*item.forward, *item.backward)}
        idle = [name for name in self._devices if name not in used]
        local_stages = [index for index, item in enumerate(stages) if not item.has_remote_backward]
        if not idle or not local_stages:
            return None
        index = self._random.choice(local_stages)
        names = [replica.device for replica in stages[index].forward]
        return self._regrouped(stages, {index: [*names, self._random.choice(idle)]})

    def _regrouped(self, stages: list[Stage], devices: dict[int, list[str]]) -> list[Stage] | None:
        for index, names in devices.items():
            group = self._group_of(sorted(names, key=self._devices.index)) if len(names) > 1 else (Replica(names[0]),)
            if group is None:
                return None
            stages[index] = _with_group(stages[index], group)
        return stages

    def _split(self, stages: list[Stage]) -> list[Stage] | None:
        index = self._random.randrange(len(stages))
        item = stages[index]
        if item.stop - item.start < 2 or item.has_remote_backward:
            return None
        cut = self._random.randrange(item.start + 1, item.stop)
        used = {replica.device for other in stages for replica in (*other.forward, *other.backward)}
        idle = [name for name in self._devices if name not in used]
        first, second = item.forward, item.forward
        if len(item.forward) > 1:
            names = [replica.device for replica in item.forward]
            middle = self._random.randrange(1, len(names))
            groups = [self._shared(part, ()) for part in (names[:middle], names[middle:])]
            if not all(groups):
                return None
            first, second = groups
        elif idle:
            second = (Replica(self._random.choice(idle)),)
        elif self._virtual_stages:
            second = (Replica(self._random.choice(self._devices)),)
        else:
            return None
        left = _with_group(msgspec.structs.replace(item, stop=cut), first)
        right = _with_group(msgspec.structs.replace(item, start=cut), second)
        return [*stages[:index], left, right, *stages[index + 1 :]]

    def _merge(self, stages: list[Stage]) -> list[Stage] | None:
        if len(stages) < 2:
            return None
        index = self._random.randrange(1, len(stages))
        left, right = stages[index - 1], stages[index]
        kept = self._random.choice([left, right])
        whole = msgspec.structs.replace(kept, start=left.start, stop=right.stop)
        return [*stages[: index - 1], whole, *stages[index + 1 :]]

    def _make_remote(self, stages: list[Stage]) -> list[Stage] | None:
        """Move the backward of some layers at a cut to the neighbouring stage's device."""
        if len(stages) < 2:
            return None
        index = self._random.randrange(1, len(stages))
        left, right = stages[index - 1], stages[index]
        if left.has_remote_backward or right.has_remote_backward or len(left.forward) > 1 or len(right.forward) > 1:
            return None
        count = self._random.choice([1, 1, 2, 3])
        if self._random.random() < 0.5:
            if left.stop - left.start < count:
                return None
            cut = left.stop - count
            remote = msgspec.structs.replace(left, start=cut, backward=right.backward)
            rest = [msgspec.structs.replace(left, stop=cut)] if cut > left.start else []
            return [*stages[: index - 1], *rest, remote, *stages[index:]]
        if right.stop - right.start < count:
            return None
        cut = right.start + count
        remote = msgspec.structs.replace(right, stop=cut, backward=left.backward)
        rest = [msgspec.structs.replace(right, start=cut)] if cut < right.stop else []
        return [*stages[:index], remote, *rest, *stages[index + 1 :]]

    def _make_local(self, stages: list[Stage]) -> list[Stage] | None:
        remote = [index for index, item in enumerate(stages) if item.has_remote_backward]
        if not remote:
            return None
        index = self._random.choice(remote)
        side = self._random.choice(["forward", "backward"])
        stages[index] = _with_group(stages[index], getattr(stages[index], side))
        return stages

    def _shard(self, stages: list[Stage]) -> list[Stage] | None:
        index = self._random.randrange(len(stages))
        if not stages[index].can_shard_optimizer:
            return None
        is_sharded = stages[index].sharded_optimizer
        stages[index] = msgspec.structs.replace(stages[index], sharded_optimizer=not is_sharded)
        return stages

    def _recompute(self, stages: list[Stage]) -> list[Stage] | None:
        index = self._random.randrange(len(stages))
        stages[index] = msgspec.structs.replace(stages[index], recompute=not stages[index].recompute)
        return stages


def shifted_cuts(plan: Plan) -> Iterator[Plan]:
    """Yield the plan with one cut shifted, for every cut and every step of `STEPS`, the small ones first."""
    stages = plan.stages
    for step in STEPS:
        for index in range(1, len(stages)):
            left, right = stages[index - 1], stages[index]
            if left.start < left.stop + step < right.stop:
                pair = (
                    msgspec.structs.replace(left, stop=left.stop + step),
                    msgspec.structs.replace(right, start=left.stop + step),
                )
                shifted = [*stages[: index - 1], *pair, *stages[index + 1 :]]
                yield msgspec.structs.replace(plan, stages=tuple(_joined(shifted)))


def _with_group(stage: Stage, group: Group) -> Stage:
    is_sharded = stage.sharded_optimizer and len(group) > 1
    return msgspec.structs.replace(stage, forward=group, backward=group, sharded_optimizer=is_sharded)


def _joined(stages: list[Stage]) -> list[Stage]:
    """Merge neighbouring stages with the same groups."""
    joined = [stages[0]]
    for item in stages[1:]:
        last = joined[-1]
        if _form(last) == _form(item):
            joined[-1] = msgspec.structs.replace(last, stop=item.stop)
        else:
            joined.append(item)
    return joined


def _form(stage: Stage) -> tuple[Group, Group, bool, bool]:
    """What neighbouring stages must have in common to be merged."""
    return stage.forward, stage.backward, stage.recompute, stage.sharded_optimizer
