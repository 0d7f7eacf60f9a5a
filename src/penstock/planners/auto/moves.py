"""Small changes of a plan, for searches: each gives another plan that is whole and valid.

They shift a cut, swap two devices, lend a device from one group to another, let an idle one join, split a stage or
merge two, move the backward of some units at a cut to the neighbour's device (two sets of cuts) or back, and turn
recomputation on or off.
"""

import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from penstock.plan import Group, Plan, Replica, Stage

STEPS = (-1, 1, -2, 2, -4, 4)
Shares = Callable[[Sequence[str]], Group | None]
"""The group of some devices with shares by speed; None if one is too slow to take part."""


class Moves:
    """Draws random changes; the same seed draws the same ones."""

    def __init__(
        self,
        seed: int,
        devices: Sequence[str],
        group_of: Shares,
        *,
        replication: bool = True,
        moving: bool = True,
        splitting: bool = True,
        recomputing: bool = True,
    ) -> None:
        self._random = random.Random(seed)
        self._devices = list(devices)
        self._group_of = group_of
        self._doubling = splitting
        self._kinds = [self._shift, self._shift, self._shift, self._swap, self._split, self._merge]
        if recomputing:
            self._kinds += [self._recompute]
        if replication:
            self._kinds += [self._lend, self._lend, self._join]
        if moving:
            self._kinds += [self._move, self._move, self._home]

    def draw(self, plan: Plan) -> Plan | None:
        """The plan with one random change; None if that one cannot be made here."""
        stages = self._random.choice(self._kinds)(list(plan.stages))
        if stages is None:
            return None
        return msgspec.structs.replace(plan, stages=tuple(_joined(stages)))

    def _shift(self, stages: list[Stage]) -> list[Stage] | None:
        if len(stages) < 2:
            return None
        place = self._random.randrange(1, len(stages))
        left, right = stages[place - 1], stages[place]
        cut = left.stop + self._random.choice([-8, -4, -2, -1, -1, 1, 1, 2, 4, 8])
        if not left.start < cut < right.stop:
            return None
        stages[place - 1] = msgspec.structs.replace(left, stop=cut)
        stages[place] = msgspec.structs.replace(right, start=cut)
        return stages

    def _swap(self, stages: list[Stage]) -> list[Stage] | None:
        """Two devices change places everywhere."""
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
        found = self._group_of(names)
        return found if found is not None else before

    def _lend(self, stages: list[Stage]) -> list[Stage] | None:
        homes = [place for place, item in enumerate(stages) if not item.has_remote_backward]
        if len(homes) < 2:
            return None
        giver, taker = self._random.sample(homes, 2)
        if len(stages[giver].forward) < 2:
            return None
        names = [replica.device for replica in stages[giver].forward]
        lent = names.pop(self._random.randrange(len(names)))
        wanted = [replica.device for replica in stages[taker].forward]
        if lent in wanted:
            return None
        return self._regrouped(stages, {giver: names, taker: [*wanted, lent]})

    def _join(self, stages: list[Stage]) -> list[Stage] | None:
        """A device that does nothing yet joins a group."""
        used = {replica.device for item in stages for replica in (*item.forward, *item.backward)}
        idle = [name for name in self._devices if name not in used]
        homes = [place for place, item in enumerate(stages) if not item.has_remote_backward]
        if not idle or not homes:
            return None
        place = self._random.choice(homes)
        names = [replica.device for replica in stages[place].forward]
        return self._regrouped(stages, {place: [*names, self._random.choice(idle)]})

    def _regrouped(self, stages: list[Stage], names: dict[int, list[str]]) -> list[Stage] | None:
        for place, wanted in names.items():
            group = (
                self._group_of(sorted(wanted, key=self._devices.index)) if len(wanted) > 1 else (Replica(wanted[0]),)
            )
            if group is None:
                return None
            stages[place] = _with_group(stages[place], group)
        return stages

    def _split(self, stages: list[Stage]) -> list[Stage] | None:
        place = self._random.randrange(len(stages))
        item = stages[place]
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
        elif self._doubling:
            second = (Replica(self._random.choice(self._devices)),)
        else:
            return None
        left = _with_group(msgspec.structs.replace(item, stop=cut), first)
        right = _with_group(msgspec.structs.replace(item, start=cut), second)
        return [*stages[:place], left, right, *stages[place + 1 :]]

    def _merge(self, stages: list[Stage]) -> list[Stage] | None:
        if len(stages) < 2:
            return None
        place = self._random.randrange(1, len(stages))
        left, right = stages[place - 1], stages[place]
        kept = self._random.choice([left, right])
        whole = msgspec.structs.replace(kept, start=left.start, stop=right.stop)
        return [*stages[: place - 1], whole, *stages[place + 1 :]]

    def _move(self, stages: list[Stage]) -> list[Stage] | None:
        """Units at a cut keep their forward, and their backward goes to the neighbour's device."""
        if len(stages) < 2:
            return None
        place = self._random.randrange(1, len(stages))
        left, right = stages[place - 1], stages[place]
        if left.has_remote_backward or right.has_remote_backward or len(left.forward) > 1 or len(right.forward) > 1:
            return None
        count = self._random.choice([1, 1, 2, 3])
        if self._random.random() < 0.5:
            if left.stop - left.start < count:
                return None
            cut = left.stop - count
            moved = msgspec.structs.replace(left, start=cut, backward=right.backward)
            rest = [msgspec.structs.replace(left, stop=cut)] if cut > left.start else []
            return [*stages[: place - 1], *rest, moved, *stages[place:]]
        if right.stop - right.start < count:
            return None
        cut = right.start + count
        moved = msgspec.structs.replace(right, stop=cut, backward=left.backward)
        rest = [msgspec.structs.replace(right, start=cut)] if cut < right.stop else []
        return [*stages[:place], moved, *rest, *stages[place + 1 :]]

    def _home(self, stages: list[Stage]) -> list[Stage] | None:
        moved = [place for place, item in enumerate(stages) if item.has_remote_backward]
        if not moved:
            return None
        place = self._random.choice(moved)
        side = self._random.choice(["forward", "backward"])
        stages[place] = _with_group(stages[place], getattr(stages[place], side))
        return stages

    def _recompute(self, stages: list[Stage]) -> list[Stage] | None:
        place = self._random.randrange(len(stages))
        stages[place] = msgspec.structs.replace(stages[place], recompute=not stages[place].recompute)
        return stages


def shifted_cuts(plan: Plan) -> Iterator[Plan]:
    """The plan with every cut moved, one at a time, by the steps of a search, the small ones first."""
    stages = plan.stages
    for step in STEPS:
        for place in range(1, len(stages)):
            left, right = stages[place - 1], stages[place]
            if left.start < left.stop + step < right.stop:
                pair = (
                    msgspec.structs.replace(left, stop=left.stop + step),
                    msgspec.structs.replace(right, start=left.stop + step),
                )
                moved = [*stages[: place - 1], *pair, *stages[place + 1 :]]
                yield msgspec.structs.replace(plan, stages=tuple(_joined(moved)))


def _with_group(stage: Stage, group: Group) -> Stage:
    return msgspec.structs.replace(stage, forward=group, backward=group)


def _joined(stages: list[Stage]) -> list[Stage]:
    """Neighbours with the same groups are one stage."""
    found = [stages[0]]
    for item in stages[1:]:
        last = found[-1]
        if (last.forward, last.backward, last.recompute) == (item.forward, item.backward, item.recompute):
            found[-1] = msgspec.structs.replace(last, stop=item.stop)
        else:
            found.append(item)
    return found
