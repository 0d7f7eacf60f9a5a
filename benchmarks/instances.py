"""Published profiles of real models, converted for the benchmarks.

`python benchmarks/instances.py [FOLDER]` lists them. The folder is not part of the project; its default is
../shared/instances beside the repository.
"""

import argparse
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.errors import FileError, InputError
from penstock.io import read_bytes
from penstock.profile import Profile, Sizes, Times, Unit, affine, load_profile
from penstock.units import show_bytes, show_seconds

DEFAULT_FOLDER = Path(__file__).parents[2] / "shared" / "instances"

HPGO_ROWS = {"bert_large": 6, "xlnet": 1, "amoebanet_18": 8, "vgg19": 32, "gnmt_16": 64}
"""Micro-batch sizes of these measurements. The files do not contain them."""

T = TypeVar("T")


class _HarmonyUnit(msgspec.Struct):
    name: str
    parameter_bytes: int
    input_bytes_per_sample: int
    saved_bytes: list[int]
    forward_s: list[float]
    backward_s: list[float]


class _Harmony(msgspec.Struct):
    model: str
    rows: list[int]
    units: list[_HarmonyUnit]


class _SailorTimes(msgspec.Struct):
    forward_s: float
    backward_s: float
    update_s: float


class _SailorUnit(msgspec.Struct):
    name: str
    parameter_bytes: int
    output_bytes_per_sample: int
    saved_bytes_per_sample: int
    times: dict[str, dict[int, _SailorTimes]]


class _Sailor(msgspec.Struct):
    model: str
    units: list[_SailorUnit]


class _Regions(msgspec.Struct):
    pairs: dict[str, tuple[float, float]]


def all_profiles(folder: Path = DEFAULT_FOLDER) -> dict[str, Profile]:
    """Every profile in the folder, by the path of its file, such as "hpgo/vgg19"."""
    if not folder.is_dir():
        raise FileError("the folder of published profiles does not exist", where=str(folder), hint="Pass its path.")
    profiles = {}
    for path in sorted([*folder.glob("pipedream/*.txt"), *folder.glob("hpgo/*.txt"), *folder.glob("piper/*.json")]):
        rows = HPGO_ROWS.get(path.stem, 1) if path.parent.name == "hpgo" else None
        profiles[f"{path.parent.name}/{path.stem}"] = load_profile(str(path), micro_batch_size=rows)
    for name in ("gpt2_medium", "vgg416"):
        profiles[f"mixed/{name}"] = harmony(folder / "mixed" / f"{name}.json")
    profiles["mixed/opt350"] = sailor(folder / "mixed" / "opt350.json")
    return profiles


def harmony(path: Path) -> Profile:
    """A chain measured at several micro-batch sizes on one device kind. The profile has the largest size."""
    source = _decode(path, _Harmony)
    inputs = [unit.input_bytes_per_sample for unit in source.units]
    units = []
    for unit, output in zip(source.units, [*inputs[1:], 0], strict=True):
        measured = list(zip(source.rows, unit.saved_bytes, unit.forward_s, unit.backward_s, strict=True))
        growth = affine([(rows, float(memory)) for rows, memory, _, _ in measured]).per_row
        sizes, times = [], []
        for rows, memory, forward, backward_and_forward in measured:
            kept = min(growth * rows, memory - unit.parameter_bytes) - output * rows
            saved = max(unit.input_bytes_per_sample * rows, round(kept))
            sizes.append(Sizes(micro_batch_size=rows, cut_bytes=output * rows, saved_bytes=saved))
            backward = max(backward_and_forward - forward, 0.0)
            times.append(_times("profiled", rows, forward, backward, unit.parameter_bytes))
        units.append(Unit(name=unit.name, parameter_bytes=unit.parameter_bytes, sizes=tuple(sizes), times=tuple(times)))
    rows = max(source.rows)
    return Profile(
        name=source.model,
        micro_batch_size=rows,
        units=tuple(units),
        input_bytes=inputs[0] * rows,
        assumptions=(
            "The backward was measured with the forward recomputed in it: the forward's time is taken off.",
            "Half of the backward is weight gradient where there are parameters; the rest is input gradient.",
            "Saved bytes are what grows with the rows of the memory measured in the forward, less the unit's output.",
            "They are at least the unit's input. Weights and workspaces do not grow and are not in them.",
            "The optimizer's step was not measured and is taken as 0 s.",
        ),
    )


def sailor(path: Path) -> Profile:
    """A chain measured on several device kinds. The profile has the largest micro-batch size that all kinds have."""
    source = _decode(path, _Sailor)
    units = []
    for index, unit in enumerate(source.units):
        output = unit.output_bytes_per_sample if index + 1 < len(source.units) else 0
        times = [
            _times(kind, rows, seconds.forward_s, seconds.backward_s, unit.parameter_bytes, seconds.update_s)
            for kind, by_rows in unit.times.items()
            for rows, seconds in by_rows.items()
        ]
        sizes = Sizes(micro_batch_size=1, cut_bytes=output, saved_bytes=unit.saved_bytes_per_sample)
        units.append(Unit(name=unit.name, parameter_bytes=unit.parameter_bytes, sizes=(sizes,), times=tuple(times)))
    common = set.intersection(*(set(by_rows) for by_rows in source.units[0].times.values()))
    return Profile(
        name=source.model,
        micro_batch_size=max(common),
        units=tuple(units),
        assumptions=(
            "Half of the backward is weight gradient where there are parameters; the rest is input gradient.",
            "The size of the model's input is not in the source and is taken as 0.",
        ),
    )


def regions(folder: Path = DEFAULT_FOLDER) -> dict[tuple[str, str], tuple[float, float]]:
    """Latency in seconds and bandwidth in bytes per second between ten cloud regions."""
    path = folder / "mixed" / "regions.json"
    links = {}
    for pair, (delay_ms, gigabits) in _decode(path, _Regions).pairs.items():
        first, _, second = pair.partition("-")
        links[first, second] = links[second, first] = (delay_ms / 1e3, gigabits * 125e6)
    return links


def _times(kind: str, rows: int, forward: float, backward: float, parameters: int, step: float = 0.0) -> Times:
    weight_grad = backward / 2 if parameters else 0.0
    return Times(
        kind=kind,
        micro_batch_size=rows,
        forward_s=forward,
        input_grad_s=backward - weight_grad,
        weight_grad_s=weight_grad,
        step_s=step,
    )


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(read_bytes(path), type=kind)
    except msgspec.MsgspecError as error:
        raise InputError(f"unexpected contents: {error}", where=str(path)) from None


def main() -> None:
    parser = argparse.ArgumentParser(description="List the published profiles.")
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    folder = parser.parse_args().folder
    try:
        profiles, links = all_profiles(folder), regions(folder)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    print(f"{'profile':24} {'units':>5} {'rows':>4} {'forward':>9} {'backward':>9} {'parameters':>10}  kinds")
    for name, profile in profiles.items():
        first = [unit.times[0] for unit in profile.units]
        forward = show_seconds(sum(time.forward_s for time in first))
        backward = show_seconds(sum(time.input_grad_s + time.weight_grad_s for time in first))
        parameters = show_bytes(sum(unit.parameter_bytes for unit in profile.units))
        kinds, rows = ", ".join(profile.kinds), first[0].micro_batch_size
        print(f"{name:24} {profile.num_units:5} {rows:4} {forward:>9} {backward:>9} {parameters:>10}  {kinds}")
    print(f"regions: {len({source for source, _ in links})} with {len(links)} links")


if __name__ == "__main__":
    main()
