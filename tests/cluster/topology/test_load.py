"""Detection of formats, and clean errors for damaged texts."""

import random
import re

import pytest

from penstock.cluster.toml.reader import parse_cluster
from penstock.cluster.toml.writer import write_cluster
from penstock.cluster.topology.load import FORMATS, parse_topology
from penstock.cluster.topology.options import ImportOptions
from penstock.cluster.types import Wire
from penstock.errors import InputError
from tests.support.topology_texts import EVERY

NUM_MUTATIONS = 10_000
TOKENS = re.compile(r"\s+|[A-Za-z_0-9.]+|.", re.DOTALL)
ODD = [
    "", "0", "-1", "1e400", "nan", "99999999999999999999", "GPU0", "GPU7", "NIC0", "X", "NV4", "NV0", "NV99999", "SYS",
    "CPU", "<", "</", "/>", "<cpu>", "<pci>", "<gpu", "</cpu>", '"', "'", "=", "count", "&amp;", "&x;", "<!DOCTYPE",
    "]]>", "[", "]", "[1-3]", "[1-99999999]", "[3-1]", "Nodes=", "Switches=", "SwitchName=", "BlockName=", "#", "- ",
    "-\n", ": ", ":\n", "  ", "\t", "\n", "|", "&a", "*a", ",", ";", "GB/s", "1 GB/s", "unlimited", "\x00",
    "\x1b[4m", "\x1b", "é", "\u2028", "\ufeff",
]  # fmt: skip
TEXTS = [(name, text) for name, texts in EVERY.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_every_format_is_recognised(name: str, text: str) -> None:
    found = parse_topology(text, name="c", where="f")
    assert found == parse_topology(text, name="c", where="f", source=name)
    # The cluster can be written and reads back equal.
    again = parse_cluster(write_cluster(found), where="again")
    assert again.digest == found.digest


@pytest.mark.parametrize("text", ["", "hello", "hosts = 2\n", "{}", "<html>\n</html>", "[[host]]\nname = 'a'\n"])
def test_unknown_formats(text: str) -> None:
    with pytest.raises(InputError, match="format is not recognised"):
        parse_topology(text, name="c", where="f")
    for source in FORMATS:
        with pytest.raises(InputError):
            parse_topology(text, name="c", where="f", source=source)


def test_texts_that_are_too_long() -> None:
    with pytest.raises(InputError, match="characters"):
        parse_topology(" " * 16_000_001, name="c", where="f")


def mutated(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 4)):
        match rng.randrange(3):
            case 0:
                index = rng.randrange(len(text) + 1)
                text = text[:index] + rng.choice(ODD) + text[index + rng.choice((0, 0, 1, 5, 40)) :]
            case 1:
                tokens = TOKENS.findall(text) or [""]
                one, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
                tokens[one] = rng.choice((tokens[other], rng.choice(ODD)))
                text = "".join(tokens)
            case _:
                lines = text.splitlines(keepends=True) or [""]
                one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[one] = rng.choice(
                    (lines[other], "", lines[one] * 2, lines[one][: rng.randrange(len(lines[one]) + 1)])
                )
                text = "".join(lines)
    return text


def test_mutations_parse_or_raise_input_errors() -> None:
    rng = random.Random(5)
    alone, hosts = ImportOptions(), ImportOptions(kind="T4", num_hosts=2, between=Wire(bandwidth=1e9))
    some = ImportOptions(devices_per_host=2, nodes="n1")
    whats = []
    for number in range(NUM_MUTATIONS):
        name, text = TEXTS[number % len(TEXTS)]
        options = rng.choice((alone, alone, some)) if name == "slurm" else rng.choice((alone, hosts))
        source = rng.choice((None, name))
        try:
            found = parse_topology(mutated(rng, text), name="c", where="f", source=source, options=options)
        except InputError as error:
            whats.append(error.what)
            continue
        if number % 20 == 0:
            assert parse_cluster(write_cluster(found), where="again").digest == found.digest
    assert all(whats)
    # A reader that refuses everything, or nothing, would pass otherwise.
    assert 0.2 * NUM_MUTATIONS < len(whats) < 0.9 * NUM_MUTATIONS
