"""Parsing of faults."""

import pytest

from penstock.cluster.load import load_cluster
from penstock.emulation.faults import (
    Faults,
    KilledRank,
    LinkFault,
    SlowDevice,
    parse_killed_rank,
    parse_link_fault,
    parse_slow_device,
)
from penstock.errors import InputError

CLUSTER = load_cluster("2 x 2 x X @ 10 GB/s / 1 GB/s")
USED = ["h0.d0", "h0.d1", "h1.d0"]


def test_slow_devices() -> None:
    assert parse_slow_device("h0.d0=3x", USED) == SlowDevice("h0.d0", 3.0)
    assert parse_slow_device("h0.d1=1.5", USED).factor == 1.5
    faults = Faults(slowed=(SlowDevice("h0.d0", 3.0), SlowDevice("h0.d0", 2.0)))
    assert faults.slowness("h0.d0") == 6.0
    assert faults.slowness("h0.d1") == 1.0


def test_links_between_devices_and_hosts() -> None:
    both = (("h0.d0", "h1.d0"), ("h1.d0", "h0.d0"))
    assert parse_link_fault("h0.d0-h1.d0=0.1x@10s", CLUSTER, USED) == LinkFault(both, 0.1, 10.0, ("h0.d0", "h1.d0"))
    # A host stands for those of its devices that the plan uses; without a moment it is at once.
    found = parse_link_fault("h0-h1=0.5x", CLUSTER, USED)
    assert found.at_s == 0.0
    assert set(found.links) == {*both, ("h0.d1", "h1.d0"), ("h1.d0", "h0.d1")}
    # Inside a host.
    assert set(parse_link_fault("h0-h0=0.5x", CLUSTER, USED).links) == {("h0.d0", "h0.d1"), ("h0.d1", "h0.d0")}


def test_names_may_have_dashes() -> None:
    toml_like = load_cluster("2 x X @ 1 GB/s")
    assert parse_link_fault("d0-d1=2x", toml_like, ["d0", "d1"]).links == (("d0", "d1"), ("d1", "d0"))


def test_ranks_to_kill() -> None:
    assert parse_killed_rank("2@3", 4, 5) == KilledRank(2, 3)
    # The first step is 0, so of three steps the last is 2.
    assert parse_killed_rank("2@2", 4, 3) == KilledRank(2, 2)
    with pytest.raises(InputError, match=r"step 3 does not exist\n  Steps are 0 to 2\. Use --steps for more"):
        parse_killed_rank("2@3", 4, 3)
    with pytest.raises(InputError, match="The only step is 0"):
        parse_killed_rank("0@1", 4, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("d9=3x", "'d9' is not a device of the plan"),
        (
            "h0.d1",
            "the factor is missing\n  Use DEVICE=FACTOR, such as --slow h0.d0=3x.",
        ),
        ("h0.d1", "Valid names: h0.d0, h0.d1, h1.d0."),
        ("3x", "the factor is missing"),
        ("=3x", "'' is not a device of the plan"),
        ("h1.d1=3x", "'h1.d1' is not a device of the plan"),
        ("h0.d0=", "'' is not a factor"),
        ("h0.d0=0x", "'0x' is not a factor"),
        ("h0.d0=-1x", "'-1x' is not a factor"),
        ("h0.d0=1e999x", "is not a factor"),
        ("h0.d0=nanx", "is not a factor"),
    ],
)
def test_bad_slow_devices(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_slow_device(text, USED)
    assert words in str(caught.value)
    assert "--slow" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h0.d0=0.1x", "does not name two devices or hosts"),
        ("h0-h1", "the factor is missing\n  Use END-END=FACTOR, such as --link "),
        ("h0-h1", "Valid names: h0.d0, h0.d1, h1.d0, h0, h1."),
        ("h0.d0-h9=0.1x", "does not name two devices or hosts"),
        ("h0.d0-h1.d1=0.1x", "does not name two devices or hosts"),
        ("h0.d0-h0.d0=0.1x", "a device has no link to itself"),
        ("h1-h1=0.1x", "a device has no link to itself"),
        ("h0-h1=much", "'much' is not a factor"),
        ("h0-h1=0.1x@soon", "'soon' is not a quantity"),
        ("h0-h1=0.1x@10", "has no unit"),
    ],
)
def test_bad_links(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_link_fault(text, CLUSTER, USED)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "2", "@", "2@", "x@1", "4@0", "-1@0", "2@3@4"])
def test_bad_ranks(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_killed_rank(text, 4, 9)
    assert "--kill" in str(caught.value)
