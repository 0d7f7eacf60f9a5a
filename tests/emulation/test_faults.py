"""Faults as people write them."""

import pytest

from penstock.cluster.load import load_cluster
from penstock.emulation.faults import Faults, Killed, LinkFault, Slowed, parse_killed, parse_link, parse_slowed
from penstock.errors import InputError

CLUSTER = load_cluster("2 x 2 x X @ 10 GB/s / 1 GB/s")
USED = ["h0.d0", "h0.d1", "h1.d0"]


def test_slow_devices() -> None:
    assert parse_slowed("h0.d0=3x", USED) == Slowed("h0.d0", 3.0)
    assert parse_slowed("h0.d1=1.5", USED).factor == 1.5
    faults = Faults(slowed=(Slowed("h0.d0", 3.0), Slowed("h0.d0", 2.0)))
    assert faults.slowness("h0.d0") == 6.0
    assert faults.slowness("h0.d1") == 1.0


def test_links_between_devices_and_hosts() -> None:
    both = (("h0.d0", "h1.d0"), ("h1.d0", "h0.d0"))
    assert parse_link("h0.d0-h1.d0=0.1x@10s", CLUSTER, USED) == LinkFault(both, 0.1, 10.0, ("h0.d0", "h1.d0"))
    # A host stands for those of its devices that the plan uses; without a moment it is at once.
    found = parse_link("h0-h1=0.5x", CLUSTER, USED)
    assert found.at_s == 0.0
    assert set(found.links) == {*both, ("h0.d1", "h1.d0"), ("h1.d0", "h0.d1")}
    # Inside a host.
    assert set(parse_link("h0-h0=0.5x", CLUSTER, USED).links) == {("h0.d0", "h0.d1"), ("h0.d1", "h0.d0")}


def test_names_may_have_dashes() -> None:
    toml_like = load_cluster("2 x X @ 1 GB/s")
    assert parse_link("d0-d1=2x", toml_like, ["d0", "d1"]).links == (("d0", "d1"), ("d1", "d0"))


def test_ranks_to_kill() -> None:
    assert parse_killed("2@3", 4, 5) == Killed(2, 3)
    # The first step is 0, so of three steps the last is 2.
    assert parse_killed("2@2", 4, 3) == Killed(2, 2)
    with pytest.raises(InputError, match="there is no step 3\n  Steps are counted from 0, and there are steps 0 to 2;"):
        parse_killed("2@3", 4, 3)
    with pytest.raises(InputError, match="there is step 0 only"):
        parse_killed("0@1", 4, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("d9=3x", "'d9' is not a device of the plan"),
        (
            "h0.d1",
            "there is no factor\n  Write a device, = and how many times as long it takes, such as --slow h0.d0=3x",
        ),
        ("h0.d1", "there are h0.d0, h0.d1, h1.d0."),
        ("3x", "there is no factor"),
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
        parse_slowed(text, USED)
    assert words in str(caught.value)
    assert "--slow" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h0.d0=0.1x", "does not name two ends"),
        ("h0-h1", "there is no factor\n  Write two devices or hosts, = and a factor, such as --link "),
        ("h0-h1", "there are h0.d0, h0.d1, h1.d0, h0, h1."),
        ("h0.d0-h9=0.1x", "does not name two ends"),
        ("h0.d0-h1.d1=0.1x", "does not name two ends"),
        ("h0.d0-h0.d0=0.1x", "no link from a device to itself"),
        ("h1-h1=0.1x", "no link from a device to itself"),
        ("h0-h1=much", "'much' is not a factor"),
        ("h0-h1=0.1x@soon", "'soon' is not a quantity"),
        ("h0-h1=0.1x@10", "has no unit"),
    ],
)
def test_bad_links(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_link(text, CLUSTER, USED)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "2", "@", "2@", "x@1", "4@0", "-1@0", "2@3@4"])
def test_bad_ranks(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_killed(text, 4, 9)
    assert "--kill" in str(caught.value)
