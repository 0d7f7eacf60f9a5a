"""The two ends of the link between hosts: host 0 listens and admits the others, which connect to it."""

import socket
from functools import partial

from penstock.errors import FileError
from penstock.launch.runs.host_link import HostLink
from penstock.launch.runs.host_messages import LOST_S, Go, HostConnection, Join, Refused

RETRY_S = 0.5


def open_link(own: Join, nnodes: int, endpoint: tuple[str, int]) -> HostLink:
    """Return this host's end of the link.

    Args:
        own: This host.
        nnodes: The number of hosts.
        endpoint: Address and port of host 0.
    """
    return OtherHost(own, nnodes, endpoint) if own.node_rank else HostZero(own, nnodes, endpoint)


class HostZero(HostLink):
    """The end of host 0."""

    _server: socket.socket | None = None

    def __exit__(self, *error: object) -> None:
        if self._server is not None:
            self._is_over.set()
            self._server.close()
        super().__exit__(*error)

    def _begin(self) -> None:
        _, port = self._endpoint
        try:
            self._server = socket.create_server(("", port), backlog=self._nnodes)
        except OSError as error:
            raise FileError(
                f"host 0 cannot listen at port {port}: {error.strerror}",
                where="--rdzv-endpoint",
                hint="Choose another port, the same on all hosts.",
            ) from None
        self._start(self._accept)

    def _accept(self) -> None:
        assert self._server is not None
        while not self._is_over.is_set():
            try:
                connected, _ = self._server.accept()
            except OSError:
                return
            self._start(partial(self._serve, HostConnection(connected)))

    def _serve(self, connection: HostConnection) -> None:
        """Host 0: receive from another host."""
        try:
            join = connection.receive()
        except ValueError:
            join = None
        if not isinstance(join, Join) or not self._admit(join, connection):
            connection.close()
            return
        self._receive_all(join.node_rank, connection)
        with self._lock:
            if self._go is None:  # it can be started again
                self._joined.pop(join.node_rank)
                self._peers.pop(join.node_rank)

    def _admit(self, join: Join, connection: HostConnection) -> bool:
        with self._lock:
            why = self._why_not(join)
            if why:
                connection.send(Refused(why, "Run the same command on every host, each with its own --node-rank."))
                self._refused = None if "already" in why else Refused(why, "Run the same command on every host.")
                if self._refused is not None:
                    self._send(self._refused)
                return False
            self._joined[join.node_rank], self._peers[join.node_rank] = join, connection
            if len(self._joined) == self._nnodes:
                self._go = Go(tuple(self._joined[number] for number in range(self._nnodes)))
                self._send(self._go)
        return True

    def _why_not(self, join: Join) -> str:
        if not 0 < join.node_rank < self._nnodes:
            return f"host {join.host} has node rank {join.node_rank}, but there are {self._nnodes} hosts"
        if join.node_rank in self._joined:
            return f"host {self._joined[join.node_rank].host} has already node rank {join.node_rank}"
        if join.run != self._own.run:
            return f"host {join.host} trains something else than host {self._own.host}: {join.run}, not {self._own.run}"
        return ""


class OtherHost(HostLink):
    """The end of any other host."""

    def _begin(self) -> None:
        self._start(self._connect)

    def _connect(self) -> None:
        """Other hosts: connect to host 0, which may not be there yet, and receive from it."""
        while not self._is_over.is_set():
            try:
                connection = HostConnection(socket.create_connection(self._endpoint, LOST_S))
            except OSError:
                self._is_over.wait(RETRY_S)
                continue
            connection.send(self._own)
            self._peers[0] = connection
            self._receive_all(0, connection)
            if self._go is not None or self._refused is not None:
                return
            self._peers.pop(0, None)
            self._is_over.wait(RETRY_S)
