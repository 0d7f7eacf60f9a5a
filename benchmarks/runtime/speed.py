"""All ways to train a subject, measured in turns in the same two processes."""

import statistics
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

import penstock
from benchmarks.runtime import rank_functions
from benchmarks.runtime.contenders import NUM_STAGES, TORCH_KINDS, OurPlan, TorchPlan
from benchmarks.runtime.prediction_errors import explain
from benchmarks.runtime.measurements import ALONE, WHOLE, Row, SpeedRun
from benchmarks.runtime.machine_profile import measure_here
from benchmarks.runtime.plans import AUTO, EQUAL_1F1B, ONE_SET, Option, our_options, same_work
from benchmarks.runtime.ranks import Ranks
from benchmarks.runtime.stage_cuts import MOST_TRIED, best_cuts, cuts_by_evenness, equal_cuts
from benchmarks.runtime.workloads import Subject
from penstock import Cluster, Profile

RANKS_OF_STAGES = {"interleaved zb1p": (0, 1, 0, 1), "zbv": (0, 1, 1, 0)}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rounds: int
    profile_s: float
    kinds: tuple[str, ...]
    """Of torch's schedules."""
    tries: int
    """Iterations for each way to cut; none: only equal layers."""
    options: tuple[str, ...] = ()
    """Of our plans; all if none is named."""
    duels: int = 0
    """Further rounds of auto against torch's best alone, and of two sets of cuts against one: 1 % needs many."""


FULL = Effort(rounds=5, profile_s=25.0, kinds=TORCH_KINDS, tries=2, duels=16)
FEW = Effort(rounds=5, profile_s=25.0, kinds=("1f1b",), tries=0)
LONG = Effort(rounds=4, profile_s=25.0, kinds=("1f1b",), tries=0, options=(AUTO, EQUAL_1F1B))
QUICK = Effort(rounds=2, profile_s=1.0, kinds=("1f1b",), tries=0, options=(AUTO, EQUAL_1F1B), duels=2)


@dataclass(frozen=True)
class Entry:
    """A contender to be."""

    name: str
    detail: str
    given: OurPlan | TorchPlan | int
    option: Option | None = None


def run_speed(subject: Subject, num_microbatches: int, effort: Effort, say: Say) -> SpeedRun:
    """Measure all of it."""
    with Ranks() as ranks:
        profile, cluster = measure_here(ranks, subject, effort.profile_s)
        layers = partial(equal_cuts, profile.num_units, num_ends=int(subject.is_tokens))
        options = our_options(profile, cluster, num_microbatches, layers(num_stages=2))
        options = [item for item in options if not effort.options or item.name in effort.options]
        twins = same_work(options)
        entries = [Entry(ALONE, "", num_microbatches)]
        if subject.has_full_baseline:
            entries.append(Entry(WHOLE, "", 1))
        entries += [
            Entry(item.name, item.detail, OurPlan(item.plan, profile, cluster), item)
            for item in options
            if item.name not in twins
        ]
        for kind in effort.kinds:
            cuts = layers(num_stages=NUM_STAGES[kind])
            entries.append(_torch_entry(f"torch: {kind}, equal layers", kind, num_microbatches, cuts))
            if effort.tries:
                say(f"  trying all cuts of torch's {kind}")
                found = _search(ranks, subject, num_microbatches, kind, profile, effort.tries)
                if found != cuts:
                    entries.append(_torch_entry(f"torch: {kind}, best cuts", kind, num_microbatches, found))
        losses = {entry.name: _build(ranks, subject, num_microbatches, entry) for entry in entries}
        turns: dict[str, list[float]] = {entry.name: [] for entry in entries}
        limit: list[float] = []
        for number in range(effort.rounds):
            say(f"  round {number + 1} of {effort.rounds}")
            for entry in entries:
                turns[entry.name].append(_turn(ranks, subject, num_microbatches, entry))
            beside = ranks.on_all(rank_functions.run, ALONE, subject, num_microbatches, subject.steps, True)
            limit.append(sum(turns[ALONE][-1] / seconds for seconds in beside))
        named = {entry.name: entry for entry in entries}
        torchs = [entry.name for entry in entries if isinstance(entry.given, TorchPlan)]
        baseline = min(torchs, key=lambda name: statistics.median(turns[name]))
        say(f"  auto against {baseline}")
        over_rival = _duel(ranks, subject, num_microbatches, (named[AUTO], named[baseline]), effort.duels)
        duel: tuple[float, ...] = ()
        if ONE_SET in named and any(item.name == AUTO and item.has_remote_backward for item in options):
            say("  two sets of cuts against one")
            duel = _duel(ranks, subject, num_microbatches, (named[AUTO], named[ONE_SET]), effort.duels)
        rows = []
        for entry in entries:
            row = Row(name=entry.name, detail=entry.detail, round_s=tuple(turns[entry.name]), losses=losses[entry.name])
            rows.append(_predicted(ranks, subject, row, entry, profile, cluster))
    rows += [_renamed(next(row for row in rows if row.name == same), name) for name, same in twins.items()]
    wire = cluster.hosts[0].inside
    link = f"messages between ranks: {wire.latency_s * 1e6:.0f} us and {wire.bandwidth / 1e9:.2f} GB/s"
    return SpeedRun(
        subject=subject.name,
        title=subject.title,
        num_microbatches=num_microbatches,
        rows=tuple(rows),
        limit=tuple(limit),
        two_sets=duel,
        over_rival=over_rival,
        notes=(f"profile: {profile.assumptions[0]}", link),
    )


def _renamed(row: Row, name: str) -> Row:
    """The same measurement under another name: the plans were equal."""
    from msgspec.structs import replace

    return replace(row, name=name, detail=f"as {row.name}")


def _torch_entry(name: str, kind: str, num_microbatches: int, cuts: tuple[int, ...]) -> Entry:
    return Entry(name, f"cut before {', '.join(map(str, cuts))}", TorchPlan(kind, num_microbatches, cuts))


def _build(ranks: Ranks, subject: Subject, num_microbatches: int, entry: Entry) -> tuple[float, ...]:
    """The losses of the first iterations, from a rank that knows them."""
    given = (rank_functions.build, entry.name, subject, num_microbatches, entry.given)
    # Both ranks make the one-process training: it also runs side by side.
    answers = ranks.on_all(*given) if entry.name != WHOLE else [ranks.on_first(*given)]
    return next(tuple(losses) for losses in answers if None not in losses)


def _turn(ranks: Ranks, subject: Subject, num_microbatches: int, entry: Entry) -> float:
    given = (rank_functions.run, entry.name, subject, num_microbatches, subject.steps)
    if isinstance(entry.given, int):
        return float(ranks.on_first(*given, False))
    return float(max(ranks.on_all(*given, True)))


def _duel(
    ranks: Ranks, subject: Subject, num_microbatches: int, pair: tuple[Entry, Entry], rounds: int
) -> tuple[float, ...]:
    """How many times as fast the first is as the second, round by round; who begins changes, as it may matter."""
    found = []
    for number in range(rounds):
        first, second = pair if number % 2 else reversed(pair)
        seconds = {entry.name: _turn(ranks, subject, num_microbatches, entry) for entry in (first, second)}
        found.append(seconds[pair[1].name] / seconds[pair[0].name])
    return tuple(found)


def _search(
    ranks: Ranks, subject: Subject, num_microbatches: int, kind: str, profile: Profile, tries: int
) -> tuple[int, ...]:
    def run(cuts: tuple[int, ...]) -> Generator[float, None, None]:
        name = "tried"
        ranks.on_all(rank_functions.try_out, name, subject, num_microbatches, TorchPlan(kind, num_microbatches, cuts))
        try:
            while True:
                yield max(ranks.on_all(rank_functions.run, name, subject, num_microbatches, 1, True))
        finally:
            ranks.on_all(rank_functions.drop, name)

    return best_cuts(candidates(profile, kind), tries, run)


def candidates(profile: Profile, kind: str) -> list[tuple[int, ...]]:
    """The cuts to try, the most even first: all for GPipe and 1F1B, of others some."""
    found = cuts_by_evenness(profile, NUM_STAGES[kind], RANKS_OF_STAGES.get(kind, (0, 1)))
    return found if kind in ("gpipe", "1f1b") else found[:MOST_TRIED]


def _predicted(ranks: Ranks, subject: Subject, row: Row, entry: Entry, profile: Profile, cluster: Cluster) -> Row:
    """The row with what was predicted, for ours."""
    if entry.option is None:
        return row
    from msgspec.structs import replace

    found = penstock.evaluate(entry.option.plan, profile, cluster)
    timeline = ranks.on_all(rank_functions.measured_timeline, entry.name, subject, entry.option.plan.num_microbatches)[0]
    return replace(
        row,
        predicted_s=found.timeline.iteration_s,
        has_remote_backward=entry.option.has_remote_backward,
        explained=explain(found.timeline, timeline),
    )
