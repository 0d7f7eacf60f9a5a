"""Profiles of all formats: each is recognised, failures are InputErrors, and saved profiles load equal."""

import json
import random
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import FileError, InputError
from penstock.profile.load import DEFAULT_KIND, load_profile, save_profile
from penstock.profile.row_costs import fit
from penstock.profile.types import Profile, Sizes, Tie, Times, Unit
from tests.support.fuzzing import NUM_DAMAGED
from tests.support.reach import reach, reaches

PIPEDREAM = """\
node1 -- Input -- forward_compute_time=18.9, backward_compute_time=0.000, activation_size=4096.000, parameter_size=0.000
node2 -- Conv2d(3, 64, kernel_size=(3, 3)) -- forward_compute_time=2.2, backward_compute_time=6.0, activation_size=2048.0, parameter_size=1792.000
node3 -- ReLU(inplace) -- forward_compute_time=0.5, backward_compute_time=0.2, activation_size=2048.0, parameter_size=0.000
node4 -- LSTM(64, 64) -- forward_compute_time=4.0, backward_compute_time=8.0, activation_size=[512.0; 128.0], parameter_size=33280.0
\tnode1 -- node2
\tnode2 -- node3
\tnode3 -- node4
\tnode2 -- node4
"""  # noqa: E501

_VARIANT = {"id": "vanilla", "timePerSample": 0.03, "parameterSize": 1000.0, "memoryUsageA": 500.0, "memoryUsageB": 2e3}
PIPER = json.dumps(
    {
        "maxDevices": 4,
        "nodes": [{"id": i, "name": f"Layer{i}", "TMPCs": {"1": [_VARIANT], "2": []}} for i in range(3)],
        "edges": [{"sourceId": i, "destId": i + 1, "communicationCost": 64.0} for i in range(2)],
    },
    indent=1,
)

CONFIG = """{
 "model_type": "gpt2", "n_embd": 64, "n_layer": 2,
 "n_head": 4, "vocab_size": 100, "n_positions": 32
}"""


def own() -> Profile:
    def unit(name: str, forward: float) -> Unit:
        times = [
            Times(
                kind=kind,
                micro_batch_size=rows,
                forward_s=forward * rows,
                input_grad_s=0.1,
                weight_grad_s=1 / 3,
                step_s=1e-3,
            )
            for kind in ("A", "B")
            for rows in (1, 4)
        ]
        one = Sizes(micro_batch_size=1, cut_bytes=8, saved_bytes=2**53 + 1)
        four = Sizes(micro_batch_size=4, cut_bytes=32, saved_bytes=64, pending_bytes=7)
        return Unit(name=name, parameter_bytes=40, sizes=(one, four), times=tuple(times))

    return Profile(
        name="öwn",
        micro_batch_size=4,
        units=(unit("first", 0.1), unit("second", 0.7)),
        input_bytes=12,
        ties=(Tie(name="embedding", parameter_bytes=40, units=(0, 1)),),
        assumptions=("None of it is true.",),
    )


OWN = msgspec.json.format(msgspec.json.encode(own()), indent=1).decode()

FORMATS = {"own.json": OWN, "graph.txt": PIPEDREAM, "piper.json": PIPER, "config.json": CONFIG}


def written(folder: Path, name: str, text: str | None = None) -> str:
    path = folder / name
    path.write_text(FORMATS[name] if text is None else text, encoding="utf-8")
    return str(path)


def test_each_format_is_recognised(tmp_path: Path) -> None:
    assert load_profile(written(tmp_path, "own.json")) == own()
    graph = load_profile(written(tmp_path, "graph.txt"))
    assert (graph.name, [unit.name for unit in graph.units]) == ("graph", ["node2 Conv2d", "node4 LSTM"])
    piper = load_profile(written(tmp_path, "piper.json"))
    assert (piper.name, piper.num_units) == ("piper", 3)
    assert load_profile(written(tmp_path, "config.json")).kinds == (DEFAULT_KIND,)


def test_contents_decide_and_not_the_name(tmp_path: Path) -> None:
    for name, text in FORMATS.items():
        expected = load_profile(written(tmp_path, name))
        other = written(tmp_path, "other", "\ufeff\n" + text)
        assert load_profile(other).units == expected.units


@pytest.mark.parametrize("name", FORMATS)
def test_saved_profiles_load_equal(tmp_path: Path, name: str) -> None:
    profile = load_profile(written(tmp_path, name))
    again = tmp_path / "again.json"
    save_profile(profile, again)
    assert load_profile(str(again)) == profile
    assert load_profile(str(again)).digest == profile.digest
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({"again.json", name})


def test_steadiness_is_a_field_of_the_file(tmp_path: Path) -> None:
    steady = load_profile("gpt2", kinds=["T4"])
    assert steady.is_steady
    unsteady = msgspec.structs.replace(steady, is_steady=False)
    save_profile(unsteady, tmp_path / "p.json")
    again = load_profile(str(tmp_path / "p.json"))
    assert not again.is_steady
    # It qualifies the measurement, as assumptions do, and plans made for the profile stay valid.
    assert again.digest == unsteady.digest == steady.digest


def test_spread_is_not_part_of_the_digest(tmp_path: Path) -> None:
    stated = load_profile("gpt2", kinds=["T4"])
    unstated = msgspec.structs.replace(stated, spread=None)
    assert unstated.digest == stated.digest
    save_profile(unstated, tmp_path / "old.json")
    old = load_profile(str(tmp_path / "old.json"))
    assert old.spread is None
    assert old.known_spread.reason.startswith("Assumed spread: the profile states none")
    assert stated.known_spread is stated.spread is not None
    fields = json.loads((tmp_path / "old.json").read_text())
    (tmp_path / "wrong.json").write_text(json.dumps(fields | {"spread": {"reason": "", "forward": [0.1]}}))
    with pytest.raises(InputError, match=r"spread.forward has 1 entries for 26 layers"):
        load_profile(str(tmp_path / "wrong.json"))


def test_whole_numbers_do_not_change_the_digest(tmp_path: Path) -> None:
    # Python code may use 0 for 0.0; the file, and hence the digest, must not differ.
    times = Times(kind="k", micro_batch_size=1, forward_s=1, input_grad_s=0, weight_grad_s=2, step_s=0)
    unit = Unit(
        name="u", parameter_bytes=0, sizes=(Sizes(micro_batch_size=1, cut_bytes=0, saved_bytes=0),), times=(times,)
    )
    profile = Profile(name="p", micro_batch_size=1, units=(unit,), gradient_ratio=1, optimizer_ratio=2)
    save_profile(profile, tmp_path / "p.json")
    assert load_profile(str(tmp_path / "p.json")).digest == profile.digest
    with pytest.raises(FileError):
        save_profile(profile, tmp_path / "missing" / "p.json")


def test_a_builtin_name() -> None:
    profile = load_profile("gpt2", kinds=("T4",), micro_batch_size=2, sequence=64)
    assert (profile.micro_batch_size, profile.kinds) == (2, ("T4",))
    assert not any("is specified" in text for text in profile.assumptions)
    plain = load_profile("gpt2")
    assert (plain.micro_batch_size, plain.kinds) == (1, (DEFAULT_KIND,))
    assert f"No device kind is specified: the times are for {DEFAULT_KIND}." in plain.assumptions
    assert "No micro-batch size is specified: assumed 1." in plain.assumptions


def test_a_file_comes_before_a_builtin_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2-xl").mkdir()
    assert load_profile("gpt2-xl").num_units > 2
    (tmp_path / "gpt2").write_text(OWN)
    assert load_profile("gpt2") == own()


def test_an_unknown_name_suggests_similar_ones() -> None:
    with pytest.raises(InputError) as caught:
        load_profile("GPT2-mediun")
    assert caught.value.what == "'GPT2-mediun' is neither a file nor a built-in model"
    assert caught.value.hint.startswith("Did you mean gpt2-medium")
    with pytest.raises(InputError, match="neither a file nor a built-in model") as caught:
        load_profile("zzz/qqq.json")
    assert caught.value.hint.startswith("Built-in names: gpt2")


@pytest.mark.parametrize("source", ["", ".", "\0", "x" * 100_000, "\ud800", "/", "~", "a\nb"])
def test_odd_names(source: str) -> None:
    with pytest.raises(InputError, match="neither a file nor a built-in model"):
        load_profile(source)


def test_rows(tmp_path: Path) -> None:
    # Penstock and Piper: other rows of a micro-batch, and an input in proportion. PipeDream: what was measured.
    assert load_profile(written(tmp_path, "own.json"), micro_batch_size=8) == msgspec.structs.replace(
        own(), micro_batch_size=8, input_bytes=24
    )
    piper = load_profile(written(tmp_path, "piper.json"), micro_batch_size=8)
    assert (piper.micro_batch_size, piper.units[0].times[0].micro_batch_size) == (8, 1)
    graph = load_profile(written(tmp_path, "graph.txt"), micro_batch_size=8)
    assert (graph.micro_batch_size, graph.units[0].times[0].micro_batch_size, graph.input_bytes) == (8, 8, 4096)
    assert "assumed 1" in load_profile(written(tmp_path, "graph.txt")).assumptions[-1]
    for rows in (0, -3, 2**41):
        with pytest.raises(InputError, match="micro-batch size must be"):
            load_profile(written(tmp_path, "own.json"), micro_batch_size=rows)
    huge = written(tmp_path, "own.json", OWN.replace('"input_bytes": 12', f'"input_bytes": {2**60}'))
    with pytest.raises(InputError, match="input for 5 rows"):
        load_profile(huge, micro_batch_size=5)


def test_kinds_of_files(tmp_path: Path) -> None:
    assert load_profile(written(tmp_path, "own.json")).kinds == ("A", "B")
    with pytest.raises(InputError, match="already names its device kinds"):
        load_profile(written(tmp_path, "own.json"), kinds=("T4",))
    for name in ("graph.txt", "piper.json"):
        named = load_profile(written(tmp_path, name), kinds=("V100",))
        assert named.kinds == ("V100",)
        assert "assumed V100, as requested" in named.assumptions[-1]
        assert load_profile(written(tmp_path, name), kinds=("V100", "T4")).kinds == ("profiled",)


@pytest.mark.parametrize("name", ["own.json", "graph.txt", "piper.json"])
def test_the_sequence_of_a_measured_profile_cannot_be_changed(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="sequence length"):
        load_profile(written(tmp_path, name), sequence=128)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "broken JSON"),
        ("[]", "this JSON is not a profile"),
        ("{}", "this JSON is not a profile"),
        ('{"format": "penstock.cluster/1"}', "This is a cluster file"),
        ('{"format": 3}', "but is missing"),
        ('{"format": "penstock.profile/2"}', "missing required field"),
        ('{"nodes": 3}', "Expected `array`"),
        ('{"model_type": 3}', "model_type"),
        ('{"a": ' + "[" * 100_000, "broken JSON"),
        ("", "there are no nodes"),
        ("hello", "neither a node nor an edge"),
    ],
)
def test_files_that_are_no_profiles(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, "file", text)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load_profile(path)
    assert caught.value.where.startswith(path)


def test_not_json_and_not_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="broken JSON"):
        load_profile(written(tmp_path, "x.json", "hello"))
    (tmp_path / "binary").write_bytes(b"node1\n\xff\xfe")
    with pytest.raises(InputError, match=r"binary:2:1: this is not UTF-8 text"):
        load_profile(str(tmp_path / "binary"))


def test_computed_times_beyond_the_limit(tmp_path: Path) -> None:
    huge = {"n_embd": 10_000_000, "n_head": 1, "n_positions": 1000, "n_layer": 1, "vocab_size": 1}
    path = written(tmp_path, "config.json", json.dumps({"model_type": "gpt2", **huge}))
    assert load_profile(path).num_units > 1
    with pytest.raises(InputError, match="over 1,000,000,000 seconds"):
        load_profile(path, micro_batch_size=300_000)


# Mutations: typical and untypical damage of files.

NUMBERS = [
    "-1", "-0.0", "0", "1", "2", "3", "7", "64", "0.25", "1.5", "1e9", "1e308", "1e999", "2e18",
    "99999999999999999999", "NaN", "inf", "null", "[]", "true",
]  # fmt: skip


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    choices = rng.choice([bytes(range(256)), b'0123456789-.,:;[]{}" \n\tNode'])
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] = rng.choice(choices)
    return bytes(changed)


def change_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.choice(["cut off", "drop", "repeat", "swap"]):
        case "cut off":
            return data[: rng.randrange(len(data))]
        case "drop":
            del lines[first]
        case "repeat":
            lines.insert(first, lines[second])
        case _:
            lines[first], lines[second] = lines[second], lines[first]
    return b"".join(lines)


def replace_number(data: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"[0-9]+(\.[0-9]+)?", data))
    if not found:
        return data
    index = rng.choice(found)
    return data[: index.start()] + rng.choice(NUMBERS).encode() + data[index.end() :]


MUTATIONS = [change_bytes, change_lines, replace_number, replace_number]


@pytest.mark.parametrize("name", FORMATS)
def test_fuzz(name: str, tmp_path: Path) -> None:
    @reaches(refused=0.05, accepted=0.02)
    @settings(max_examples=NUM_DAMAGED, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**63), st.integers(1, 2))
    def check(seed: int, count: int) -> None:
        rng = random.Random(seed)
        data = FORMATS[name].encode()
        for _ in range(count):
            data = rng.choice(MUTATIONS)(data, rng) if data else data
        (tmp_path / name).write_bytes(data)
        try:
            profile = load_profile(str(tmp_path / name))
        except InputError:
            reach("refused")
            return
        reach("accepted")
        # An accepted profile is usable: it has costs, and it can be written and read again.
        for kind in profile.kinds:
            fit(profile, kind).at(profile.micro_batch_size)
        save_profile(profile, tmp_path / "again.json")
        again = load_profile(str(tmp_path / "again.json"))
        assert again == profile
        assert again.digest == profile.digest

    check()
