"""Broken cluster files and specs raise `InputError` and nothing else."""

import random
import re
from pathlib import Path

from penstock.cluster.describe import cluster_rows, link_classes
from penstock.cluster.load import load_cluster, looks_like_spec, parse_spec
from penstock.cluster.toml.reader import parse_cluster, read_cluster
from penstock.cluster.toml.writer import write_cluster
from penstock.cluster.types import Cluster
from penstock.errors import InputError
from tests.support.fuzzing import NUM_DAMAGED
from tests.support.paths import CLUSTERS

# Without comments, where a change would change nothing.
PROBED = b"""
between = "50 MB/s, 80 us"
inside = "2 GB/s, 60 us"
[probe]
date = 2026-11-16T08:00:00Z
backend = "gloo"
rounds = 3
residuals = [
  [0.0, 0.01],
  [0.25, 0.0],
]
[[host]]
name = "a"
devices = 2
kind = "cpu-1-thread"
"""
SOURCES = [PROBED, PROBED]
SOURCES += [re.sub(rb" *#[^\n]*\n", b"\n", path.read_bytes()) for path in sorted(CLUSTERS.glob("*.toml"))]
TOKENS = re.compile(rb"\s+|[A-Za-z_0-9.-]+|.", re.DOTALL)
ODD_TOKENS = [
    b"0", b"-1", b"1e400", b"nan", b"-inf", b"65537", b"99999999999999999999", b"true", b'""', b"''", b"[]", b"{}",
    b"[[", b"]]", b"[[host]]\n", b"[[device]]\n", b"[[link]]\n", b"[host]\n", b"between", b"from", b"name", b"inside",
    b"kind", b"\n", b"#", b",", b'"unlimited"', b'"1 GB/s"', b'"5 us"', b"1979-05-27T07:32:00Z", b"\x00", b"\xff",
    b"2026-11-16", b"[probe]\n", b"[0.0, -1]", b"[[0.0]]", b"\xed\xa0\x80", b'"\\ud800"', b"'''", b"a.b.c",
]  # fmt: skip
SPECS = ["8 x A100-40 @ 100 GB/s", "2 x 4 x V100-16 @ 100 GB/s / 1.25 GB/s", "1 x T4", "2x1xT4@1GB/s,3us/1Gbps,4us"]


def mutated(rng: random.Random) -> bytes:
    data = rng.choice(SOURCES)
    change = rng.choice((change_bytes, change_tokens, change_lines, change_lines))
    for _ in range(rng.randint(1, 4)):
        data = change(rng, data)
    return data


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    index = rng.randrange(len(data) + 1)
    end = index + rng.choice((0, 0, 1, 1, 2, 20))
    return data[:index] + bytes(rng.choices(range(rng.choice((128, 256))), k=rng.randint(0, 2))) + data[end:]


def change_tokens(rng: random.Random, data: bytes) -> bytes:
    tokens = TOKENS.findall(data) or [b""]
    one, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    match rng.randrange(4):
        case 0:
            tokens[one] = rng.choice(ODD_TOKENS)
        case 1:
            tokens[one], tokens[other] = tokens[other], tokens[one]
        case 2:
            del tokens[one : one + rng.randint(1, 5)]
        case _:
            tokens[one:one] = tokens[other : other + rng.randint(1, 30)]
    return b"".join(tokens)


def change_lines(rng: random.Random, data: bytes) -> bytes:
    """Changes that mostly stay TOML, so that they reach the code behind the parser."""
    lines = data.splitlines() or [b""]
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            lines[one] = lines[one].partition(b"=")[0] + b"= " + rng.choice(ODD_TOKENS)
        case 1:
            lines[one] = lines[one].partition(b"=")[0] + b"=" + lines[other].partition(b"=")[2]
        case 2:
            del lines[one]
        case _:
            start = min(one, other)
            lines += lines[start : start + rng.randint(1, 6)]
    return b"\n".join(lines)


def use(cluster: Cluster) -> None:
    """Check that an accepted cluster is usable and reads back equal."""
    if cluster.num_devices <= 2048:
        assert cluster.bandwidth.shape == cluster.latency_s.shape
        assert cluster.digest == parse_cluster(write_cluster(cluster), where="again").digest
    assert sum(item.num_links for item in link_classes(cluster)) == cluster.num_devices * (cluster.num_devices - 1)
    assert cluster_rows(cluster)


def test_mutated_files(tmp_path: Path) -> None:
    rng = random.Random(20_260)
    path = tmp_path / "mutated.toml"
    errors = []
    for _ in range(NUM_DAMAGED):
        path.write_bytes(mutated(rng))
        try:
            cluster = read_cluster(path)
        except InputError as error:
            errors.append(error)
        else:
            use(cluster)
    assert all(error.what and error.where.startswith(str(path)) for error in errors)
    # A reader that refuses everything, or nothing, would pass otherwise.
    assert 0.1 * NUM_DAMAGED < len(errors) < 0.99 * NUM_DAMAGED


def test_mutated_specs() -> None:
    rng = random.Random(20_261)
    num_read = num_refused = 0
    for _ in range(NUM_DAMAGED):
        text = list(rng.choice(SPECS))
        for _ in range(rng.randint(1, 3)):
            start = rng.randrange(len(text) + 1)
            text[start : start + rng.randint(0, 2)] = rng.choices("0129 x@/,.-eGBTsu×\x00\ud800é", k=rng.randint(0, 2))
        spec = "".join(text)
        for read in (parse_spec, load_cluster) if looks_like_spec(spec) else (load_cluster,):
            try:
                cluster = read(spec)
            except InputError:
                num_refused += 1
            else:
                num_read += 1
                use(cluster)
    # A reader that refuses everything, or nothing, would pass otherwise.
    assert num_read > 0.2 * NUM_DAMAGED
    assert num_refused > 0.2 * NUM_DAMAGED
