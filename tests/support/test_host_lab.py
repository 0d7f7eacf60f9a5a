"""The hosts of the lab have what real hosts have: own names, networks, processes and folders."""

import signal
import subprocess
import time
from pathlib import Path

from tests.support.host_lab import host_lab, needs_hosts

PING = "import socket; print(socket.create_connection(('{}', {}), 2).recv(9))"
SERVE = "import socket; s = socket.create_server(('', 5000)); c, a = s.accept(); c.send(a[0].encode()); s.accept()"


@needs_hosts
def test_hosts_of_their_own(tmp_path: Path) -> None:
    with host_lab(tmp_path, 3) as lab:
        first, second, third = lab.hosts
        assert [host.read("hostname").strip() for host in lab.hosts] == ["host0", "host1", "host2"]
        # A host's own name leads to itself, the names of the others to the network.
        assert first.read("getent", "hosts", "host0").split()[0] == "127.0.1.1"
        assert first.read("getent", "hosts", "host2").split()[0] == third.address
        # The shared folder is one, the private folders are several.
        for host in lab.hosts:
            host.read("touch", str(lab.shared / host.name), str(lab.private / host.name))
        assert sorted(second.read("ls", str(lab.shared)).split()) == ["host0", "host1", "host2"]
        assert second.read("ls", str(lab.private)).split() == ["host1"]
        # Processes see those of their host only.
        assert len([name for name in second.read("ls", "/proc").split() if name.isdigit()]) < 5
        # They reach each other, until one is lost.
        server = second.start(["python3", "-c", SERVE], tmp_path, tmp_path / "log")
        _await_port(second.init)
        assert first.read("python3", "-c", PING.format("host1", 5000)).strip() == f"b'{first.address}'"
        second.signal(server, signal.SIGKILL)
        assert server.wait(10)
        third.lose()
        assert third.holder.wait(10)
    assert not Path(f"/proc/{first.init}").exists()
    assert "host1" not in subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout
    assert not list(lab.private.iterdir())


def _await_port(init: int) -> None:
    until_s = time.monotonic() + 10
    while ":1388 " not in Path(f"/proc/{init}/net/tcp").read_text():
        assert time.monotonic() < until_s
        time.sleep(0.02)
