import pytest

from penstock.cluster.toml.reader import parse_cluster
from penstock.errors import InputError

FIVE_LINES = """
hosts = 2
devices_per_host = 4
kind = "A100-40"
inside = "100 GB/s, 5 us"
between = "1.25 GB/s, 30 us"
"""


def refuse(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        parse_cluster(text, where="c.toml")
    return caught.value


@pytest.mark.parametrize(
    ("extra", "where", "hint"),
    [
        ("device_per_host = 4", "c.toml, at device_per_host", "Did you mean 'devices_per_host'?"),
        ("Latency = 4", "c.toml, at Latency", "Known keys here: name, hosts,"),
        ("devices = 4", "c.toml, at devices", "'devices' belongs to a [[host]]; at the top it is 'devices_per_host'."),
        ("'a b' = 4", "c.toml, at 'a b'", "Known keys here"),
        ("[[host]]\nname = 'x'\ninsid = '1 GB/s'", "c.toml, at host[0].insid", "Did you mean 'inside'?"),
        ("[[host]]\nname = 'x'\nbetween = '1 GB/s'", "c.toml, at host[0].between", "'between' belongs at the top"),
        ("[[device]]\nname = 'x'\ninside = '1 GB/s'", "c.toml, at device[0].inside", "belongs to a [[host]], or at"),
        ("[[device]]\nname = 'x'\nwire = '1 GB/s'", "c.toml, at device[0].wire", "'wire' belongs to a [[link]]."),
        ("[[link]]\nform = 'd0'", "c.toml, at link[0].form", "Did you mean 'from'?"),
    ],
)
def test_unknown_keys(extra: str, where: str, hint: str) -> None:
    error = refuse(FIVE_LINES + extra)
    assert error.where == where
    assert hint in error.hint
    assert error.what.startswith("unknown key")


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "c.toml", "the cluster has no devices"),
        ("[[host]]\nname = 'a'", "c.toml", "the cluster has no devices"),
        ("hosts = 0", "c.toml, at hosts", "hosts must be at least 1, not 0"),
        ("hosts = -3", "c.toml, at hosts", "hosts must be at least 1, not -3"),
        ("hosts = true", "c.toml, at hosts", "hosts must be an integer, not true"),
        ("hosts = 2.5", "c.toml, at hosts", "hosts must be an integer, not 2.5"),
        ("devices_per_host = 65537", "c.toml", "more than 65,536 hosts or devices"),
        ("hosts = 2\ndevices_per_host = 32769", "c.toml", "more than 65,536 hosts or devices"),
        ("hosts = 10000000000000000000000", "c.toml", "more than 65,536 hosts or devices"),
        ("hosts = 99999999\n[[device]]\nname = 'a'", "c.toml", "more than 65,536 hosts or devices"),
        ("[[host]]\nname = 'a'\ndevices = 99999999", "c.toml", "more than 65,536 hosts or devices"),
        ("[[host]]\nname = 'a'\ndevices = -1", "c.toml, at host[0].devices", "devices must be at least 0, not -1"),
        ("hosts = 1", "c.toml, at kind", "kind is missing"),
        ("kind = ''", "c.toml, at kind", "kind is empty"),
        ("kind = 3", "c.toml, at kind", "kind must be a string in quotes, not 3"),
        ("[[host]]\nname = 'a'\ndevices = 1", "c.toml, at host[0].kind", "kind is missing"),
        ("[[device]]\nname = 'a'", "c.toml, at device[0].kind", "kind is missing"),
        ("[[host]]\ndevices = 1", "c.toml, at host[0].name", "name is missing"),
        ("[host]\nname = 'a'", "c.toml, at host", "host must be a list of tables"),
        ("link = [1]", "c.toml, at link", "link must be a list of tables"),
        ("speed = nan", "c.toml, at speed", "speed must be positive and finite, not nan"),
        ("speed = inf", "c.toml, at speed", "speed must be positive and finite, not inf"),
        ("speed = 0", "c.toml, at speed", "speed must be positive and finite, not 0"),
        ("speed = " + "9" * 400, "c.toml, at speed", "speed must be positive and finite, not a number of more"),
        ("speed = '1'", "c.toml, at speed", "speed must be a number, not '1'"),
        ("memory = 40", "c.toml, at memory", "memory must be a string in quotes, not 40"),
        ("memory = '40'", "c.toml, at memory", "'40' has no unit"),
        ("memory = '-1 GB'", "c.toml, at memory", "must be finite and not negative"),
        ("memory = '9999999 TB'", "c.toml, at memory", "memory must be at most 2**60 bytes, not '9999999 TB'"),
        ("inside = 3", "c.toml, at inside", "inside must be a string in quotes, not 3"),
        ("inside = [3]", "c.toml, at inside", "inside must be a string in quotes, not a list"),
        ("inside = 2020-01-01", "c.toml, at inside", "inside must be a string in quotes, not a date or time"),
        ("inside = '0 GB/s'", "c.toml, at inside", "bandwidth must be positive"),
        ("inside = '1 GB/s, 2 GB'", "c.toml, at inside", "unknown unit 'GB'"),
        ("inside = '1 GB/s, 2 us, 3 us'", "c.toml, at inside", "has more than two values"),
        ("inside = '1e999 GB/s'", "c.toml, at inside", "must be finite and not negative"),
        ("shared_interface = 3", "c.toml, at shared_interface", "must be true, false or a bandwidth in quotes, not 3"),
        ("assumptions = 'x'", "c.toml, at assumptions", "assumptions must be a list of strings in quotes, not 'x'"),
        ("devices_per_host = 2\nkind = 'A'", "c.toml, at inside", "inside is missing"),
        ("[[host]]\nname = 'a'\nkind = 'A'\ndevices = 2", "c.toml, at host[0].inside", "inside is missing"),
        ("hosts = 2\nkind = 'A'", "c.toml, at between", "between is missing"),
        (
            "hosts = 1\nkind = 'A'\nshared_interface = true",
            "c.toml, at shared_interface",
            "the bandwidth of the interface is unknown",
        ),
    ],
)
def test_refused(text: str, where: str, what: str) -> None:
    error = refuse(text)
    assert error.where == where
    assert what in error.what


@pytest.mark.parametrize(
    ("extra", "where", "what", "hint"),
    [
        ("[[host]]\nname = 'h1'", "host[0].name", "duplicate host 'h1'", ""),
        ("[[device]]\nname = 'h1.d0'\nhost = 'h0'", "device[0].name", "duplicate device 'h1.d0'", ""),
        ("[[device]]\nname = 'x'", "device[0].host", "host is missing for device 'x'", "Name one of the 2 hosts."),
        ("[[device]]\nname = 'x'\nhost = 'h2'", "device[0].host", "host 'h2' does not exist", "Known names: h0, h1."),
        ("[[link]]\nfrom = 'h0.d0'", "link[0].wire", "wire is missing", "Write wire ="),
        ("[[link]]\nfrom = 'h0.d0'\nwire = '1 GB/s'", "link[0].to", "to is missing", "Write from ="),
        (
            "[[link]]\nfrom = 'h0.d0'\nto = 'h0.d9'\nwire = '1 GB/s'",
            "link[0].to",
            "device 'h0.d9' does not exist",
            "Did you mean 'h0.d",
        ),
        (
            "[[link]]\nfrom = 'h0.d0'\nbetween = ['h0.d0', 'h0.d1']\nwire = '1 GB/s'",
            "link[0].from",
            "from and between are mutually exclusive",
            "both directions",
        ),
        (
            "[[link]]\nbetween = ['a']\nwire = '1 GB/s'",
            "link[0].between",
            "between must name two devices, not 1",
            "Write between",
        ),
        ("[[link]]\nbetween = 'a'\nwire = '1 GB/s'", "link[0].between", "must be a list of strings", ""),
        (
            "[[link]]\nbetween = ['h0.d0', 'zz']\nwire = '1 GB/s'",
            "link[0].between[1]",
            "device 'zz' does not exist",
            "Known names: h0.d0, h0.d1, h0.d2, h0.d3, h1.d0, h1.d1 and 2 more.",
        ),
        (
            "[[link]]\nbetween = ['h0.d0', 'h0.d0']\nwire = '1 GB/s'",
            "link[0].between[1]",
            "a link connects device 'h0.d0' to itself",
            "",
        ),
        (
            (
                "[[link]]\nbetween = ['h0.d0', 'h0.d1']\nwire = '1 GB/s'\n"
                "[[link]]\nfrom = 'h0.d1'\nto = 'h0.d0'\nwire = '1 GB/s'"
            ),
            "link[1].from",
            "duplicate link from 'h0.d1' to 'h0.d0'",
            "keep one of the two",
        ),
    ],
)
def test_refused_names(extra: str, where: str, what: str, hint: str) -> None:
    error = refuse(FIVE_LINES + extra)
    assert error.where == f"c.toml, at {where}"
    assert what in error.what
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("hosts = 1\nkind = A100", "c.toml:2:8"),
        ("hosts = 1\nhosts", "c.toml:2:6"),
        ("hosts = [\n", "c.toml:2:1"),
        ("hosts = " + "9" * 5000, "c.toml"),
        ("hosts = " + "[" * 20_000, "c.toml"),
        ("name = '\ud800'", "c.toml"),
    ],
)
def test_broken_toml(text: str, where: str) -> None:
    assert refuse(text).where == where
