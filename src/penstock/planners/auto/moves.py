"""Small changes of a plan, for searches: each gives another plan that is whole and valid.

They shift a cut, swap two devices, lend a device from one group to another, let an idle one join, split a segment or
merge two, move the backward of some units at a cut to the neighbour's device (two sets of cuts) or back, and turn
recomputation on or off.
"""

import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from penstock.plan import Group, Member, Plan, Segment

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
        segments = self._random.choice(self._kinds)(list(plan.segments))
        if segments is None:
            return None
        return msgspec.structs.replace(plan, segments=tuple(_joined(segments)))

    def _shift(self, segments: list[Segment]) -> list[Segment] | None:
        if len(segments) < 2:
            return None
        place = self._random.randrange(1, len(segments))
        left, right = segments[place - 1], segments[place]
        cut = left.stop + self._random.choice([-8, -4, -2, -1, -1, 1, 1, 2, 4, 8])
        if not left.start < cut < right.stop:
            return None
        segments[place - 1] = msgspec.structs.replace(left, stop=cut)
        segments[place] = msgspec.structs.replace(right, start=cut)
        return segments

    def _swap(self, segments: list[Segment]) -> list[Segment] | None:
        """Two devices change places everywhere."""
        if len(self._devices) < 2:
            return None
        one, other = self._random.sample(self._devices, 2)
        names = {one: other, other: one}

        def renamed(group: Group) -> Group:
            return self._shared([names.get(member.device, member.device) for member in group], group)

        changed = [
            msgspec.structs.replace(item, forward=renamed(item.forward), backward=renamed(item.backward))
            if item.is_moved
            else _with_group(item, renamed(item.forward))
            for item in segments
        ]
        return changed if changed != segments else None

    def _shared(self, names: list[str], before: Group) -> Group:
        if len(names) == 1:
            return (Member(names[0], 1.0),)
        found = self._group_of(names)
        return found if found is not None else before

    def _lend(self, segments: list[Segment]) -> list[Segment] | None:
        homes = [place for place, item in enumerate(segments) if not item.is_moved]
        if len(homes) < 2:
            return None
        giver, taker = self._random.sample(homes, 2)
        if len(segments[giver].forward) < 2:
            return None
        names = [member.device for member in segments[giver].forward]
        lent = names.pop(self._random.randrange(len(names)))
        wanted = [member.device for member in segments[taker].forward]
        if lent in wanted:
            return None
        return self._regrouped(segments, {giver: names, taker: [*wanted, lent]})

    def _join(self, segments: list[Segment]) -> list[Segment] | None:
        """A device that does nothing yet joins a group."""
        used = {member.device for item in segments for member in (*item.forward, *item.backward)}
        idle = [name for name in self._devices if name not in used]
        homes = [place for place, item in enumerate(segments) if not item.is_moved]
        if not idle or not homes:
            return None
        place = self._random.choice(homes)
        names = [member.device for member in segments[place].forward]
        return self._regrouped(segments, {place: [*names, self._random.choice(idle)]})

    def _regrouped(self, segments: list[Segment], names: dict[int, list[str]]) -> list[Segment] | None:
        for place, wanted in names.items():
            group = self._group_of(sorted(wanted, key=self._devices.index)) if len(wanted) > 1 else (Member(wanted[0]),)
            if group is None:
                return None
            segments[place] = _with_group(segments[place], group)
        return segments

    def _split(self, segments: list[Segment]) -> list[Segment] | None:
        place = self._random.randrange(len(segments))
        item = segments[place]
        if item.stop - item.start < 2 or item.is_moved:
            return None
        cut = self._random.randrange(item.start + 1, item.stop)
        used = {member.device for other in segments for member in (*other.forward, *other.backward)}
        idle = [name for name in self._devices if name not in used]
        first, second = item.forward, item.forward
        if len(item.forward) > 1:
            names = [member.device for member in item.forward]
            middle = self._random.randrange(1, len(names))
            groups = [self._shared(part, ()) for part in (names[:middle], names[middle:])]
            if not all(groups):
                return None
            first, second = groups
        elif idle:
            second = (Member(self._random.choice(idle)),)
        elif self._doubling:
            second = (Member(self._random.choice(self._devices)),)
        else:
            return None
        left = _with_group(msgspec.structs.replace(item, stop=cut), first)
        right = _with_group(msgspec.structs.replace(item, start=cut), second)
        return [*segments[:place], left, right, *segments[place + 1 :]]

    def _merge(self, segments: list[Segment]) -> list[Segment] | None:
        if len(segments) < 2:
            return None
        place = self._random.randrange(1, len(segments))
        left, right = segments[place - 1], segments[place]
        kept = self._random.choice([left, right])
        whole = msgspec.structs.replace(kept, start=left.start, stop=right.stop)
        return [*segments[: place - 1], whole, *segments[place + 1 :]]

    def _move(self, segments: list[Segment]) -> list[Segment] | None:
        """Units at a cut keep their forward, and their backward goes to the neighbour's device."""
        if len(segments) < 2:
            return None
        place = self._random.randrange(1, len(segments))
        left, right = segments[place - 1], segments[place]
        if left.is_moved or right.is_moved or len(left.forward) > 1 or len(right.forward) > 1:
            return None
        count = self._random.choice([1, 1, 2, 3])
        if self._random.random() < 0.5:
            if left.stop - left.start < count:
                return None
            cut = left.stop - count
            moved = msgspec.structs.replace(left, start=cut, backward=right.backward)
            rest = [msgspec.structs.replace(left, stop=cut)] if cut > left.start else []
            return [*segments[: place - 1], *rest, moved, *segments[place:]]
        if right.stop - right.start < count:
            return None
        cut = right.start + count
        moved = msgspec.structs.replace(right, stop=cut, backward=left.backward)
        rest = [msgspec.structs.replace(right, start=cut)] if cut < right.stop else []
        return [*segments[:place], moved, *rest, *segments[place + 1 :]]

    def _home(self, segments: list[Segment]) -> list[Segment] | None:
        moved = [place for place, item in enumerate(segments) if item.is_moved]
        if not moved:
            return None
        place = self._random.choice(moved)
        side = self._random.choice(["forward", "backward"])
        segments[place] = _with_group(segments[place], getattr(segments[place], side))
        return segments

    def _recompute(self, segments: list[Segment]) -> list[Segment] | None:
        place = self._random.randrange(len(segments))
        segments[place] = msgspec.structs.replace(segments[place], recompute=not segments[place].recompute)
        return segments


def shifted_cuts(plan: Plan) -> Iterator[Plan]:
    """The plan with every cut moved, one at a time, by the steps of a search, the small ones first."""
    segments = plan.segments
    for step in STEPS:
        for place in range(1, len(segments)):
            left, right = segments[place - 1], segments[place]
            if left.start < left.stop + step < right.stop:
                pair = (
                    msgspec.structs.replace(left, stop=left.stop + step),
                    msgspec.structs.replace(right, start=left.stop + step),
                )
                moved = [*segments[: place - 1], *pair, *segments[place + 1 :]]
                yield msgspec.structs.replace(plan, segments=tuple(_joined(moved)))


def _with_group(segment: Segment, group: Group) -> Segment:
    return msgspec.structs.replace(segment, forward=group, backward=group)


def _joined(segments: list[Segment]) -> list[Segment]:
    """Neighbours with the same groups are one segment."""
    found = [segments[0]]
    for item in segments[1:]:
        last = found[-1]
        if (last.forward, last.backward, last.recompute) == (item.forward, item.backward, item.recompute):
            found[-1] = msgspec.structs.replace(last, stop=item.stop)
        else:
            found.append(item)
    return found
