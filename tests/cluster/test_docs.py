"""The examples of docs/clusters.md match the readers."""

import re

from penstock.cluster.load import parse_spec
from penstock.cluster.toml import reader
from penstock.cluster.toml.reader import parse_cluster
from tests.support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "clusters.md").read_text(encoding="utf-8")


def test_the_files_on_the_page_can_be_read() -> None:
    texts = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert [parse_cluster(text, where="page").num_devices for text in texts] == [8, 3]


def test_the_specs_on_the_page_can_be_read() -> None:
    specs = re.findall(r"^    (\d.*)$", PAGE, re.MULTILINE)
    assert [parse_spec(spec).num_devices for spec in specs] == [8, 8]


def test_every_key_is_in_the_table() -> None:
    table = PAGE.partition("## All keys")[2].partition("\n\nA wire")[0]
    documented = set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in table.strip().splitlines())))
    tables = {"host", "device", "link", "probe", "all_reduce"}
    keys = {*reader._TOP_KEYS, *reader._HOST_KEYS, *reader._DEVICE_KEYS, *reader._LINK_KEYS}
    assert documented | tables == keys | {*reader._PROBE_KEYS, *reader._ALL_REDUCE_KEYS}


def test_every_example_is_on_the_page() -> None:
    shown = set(re.findall(r"^\| `([\w-]+\.toml)`", PAGE, re.MULTILINE))
    assert shown == {path.name for path in (REPOSITORY / "examples" / "clusters").glob("*.toml")}
