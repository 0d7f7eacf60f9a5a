"""The link between hosts, with several ends in this process."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from penstock.dist import HostPlace
from penstock.errors import FileError, MismatchError, RunError
from penstock.launch.runs import host_link, host_messages
from penstock.launch.runs.events import Exited, Failed
from penstock.launch.runs.host_ends import open_link
from penstock.launch.runs.host_link import HostLink
from penstock.launch.runs.host_messages import Join
from penstock.launch.runs.rank_state import RankState

LIMIT_S = 30.0


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is free for host 0. It is bound but does not listen, so that no other test takes it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield held.getsockname()[1]


def links(stack: ExitStack, port: int, runs: list[str], counts: list[int]) -> list[HostLink]:
    return [
        stack.enter_context(
            open_link(Join(number, f"host{number}", counts[number], run), len(runs), ("127.0.0.1", port))
        )
        for number, run in enumerate(runs)
    ]


def in_parallel(calls: list[object]) -> list[object]:
    """Run calls on threads of their own; return results or errors."""
    results: list[object] = [None] * len(calls)

    def run(number: int) -> None:
        try:
            results[number] = calls[number]()  # type: ignore[operator]
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    return results


def join_all(ends: list[HostLink]) -> list[object]:
    return in_parallel([lambda end=end: end.join(LIMIT_S, lambda _text: None) for end in ends])


def await_that(condition: object) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_hosts_join_and_exchange_their_ranks(port: int) -> None:
    with ExitStack() as stack:
        ends = links(stack, port, ["r"] * 3, [2, 1, 3])
        places = join_all(ends)
        # All are on this host here, whose interface leads to no other.
        assert places == [HostPlace(0, 6, 0, 3, None), HostPlace(2, 6, 1, 3, None), HostPlace(3, 6, 2, 3, None)]
        ends[0].share_store(1234)
        await_that(lambda: [end.store_port for end in ends] == [1234] * 3)
        ends[2].ask_to_stop("SIGUSR1")
        await_that(lambda: ends[0].stop_signal == "SIGUSR1")
        failed = Failed("RunError", "no")
        states = [
            [RankState(0), RankState(1, failed=failed)],
            [RankState(2, exited=Exited(-9))],
            [RankState(number) for number in (3, 4, 5)],
        ]
        found = in_parallel([lambda end=end, own=own: end.exchange(own) for end, own in zip(ends, states, strict=True)])
        assert found == [tuple(state for own in states for state in own)] * 3
        assert [end.end_why for end in ends] == [None] * 3


def test_the_end_reaches_all(port: int) -> None:
    with ExitStack() as stack:
        ends = links(stack, port, ["r"] * 3, [1, 1, 1])
        join_all(ends)
        ends[1].end("because", is_certain=True)
        await_that(lambda: [(end.end_why, end.is_end_certain) for end in ends] == [("because", True)] * 3)


def test_a_host_that_is_lost(port: int) -> None:
    with ExitStack() as stack:
        ends = links(stack, port, ["r"] * 3, [1, 2, 1])
        join_all(ends)
        ends[1].__exit__()

        def others_know() -> bool:
            for end in (ends[0], ends[2]):
                end.look()
            return all(end.end_why for end in (ends[0], ends[2]))

        await_that(others_know)
        assert ends[2].end_why == "host host1 (node rank 1) is lost: it closed its connection"
        own = [[RankState(0)], [], [RankState(3)]]
        found = in_parallel([lambda number=number: ends[number].exchange(own[number]) for number in (0, 2)])
        assert found[0] == found[1]
        assert isinstance(found[0], tuple)
        assert [(state.rank, state.is_lost) for state in found[0]] == [(0, False), (1, True), (2, True), (3, False)]


def test_a_host_that_is_silent(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_link, "LOST_S", 0.2)
    with ExitStack() as stack:
        ends = links(stack, port, ["r"] * 2, [1, 1])
        monkeypatch.setattr(ends[1], "_send_beats", lambda: None)
        join_all(ends)

        def is_noticed() -> bool:
            ends[0].look()
            return ends[0].end_why is not None

        await_that(is_noticed)
        assert ends[0].end_why == "host host1 (node rank 1) is lost: it sent nothing for 0.2 s"


def test_hosts_that_do_not_fit_together(port: int) -> None:
    with ExitStack() as stack:
        errors = join_all(links(stack, port, ["plan a", "plan b"], [1, 1]))
        assert all(isinstance(error, MismatchError) for error in errors)
        assert "host host1 trains something else than host host0: plan b, not plan a" in str(errors[1])


def test_a_host_that_does_not_come(port: int) -> None:
    with ExitStack() as stack:
        told: list[str] = []
        first, second, _ = links(stack, port, ["r"] * 3, [1, 1, 1])
        calls = [lambda: first.join(1.5, told.append), lambda: second.join(LIMIT_S, told.append)]
        errors: list[object] = [None]
        thread = threading.Thread(target=lambda: errors.append(in_parallel([calls[1]])))
        thread.start()
        with pytest.raises(RunError, match=r"node rank 2 of 3 hosts did not join within 1\.5 s"):
            calls[0]()
        assert any(text.startswith("waiting for node rank 2 of 3 hosts (") for text in told)
        second._is_over.set()
        second._refused = host_messages.Refused("over", "")
        thread.join(LIMIT_S)


def test_strangers_are_not_admitted(port: int) -> None:
    with ExitStack() as stack:
        ends = links(stack, port, ["r"] * 2, [1, 1])
        calls: list[object] = []
        thread = threading.Thread(target=lambda: calls.extend(join_all(ends[:1])))
        thread.start()
        for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\xff\xfe\n", b"gaRub2Rl\n"):
            await_that(lambda greeting=greeting: _is_closed(port, greeting))
        assert join_all(ends[1:]) == [HostPlace(1, 2, 1, 2, None)]
        thread.join(LIMIT_S)
        assert calls == [HostPlace(0, 2, 0, 2, None)]


def _is_closed(port: int, greeting: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as stranger:
            stranger.sendall(greeting)
            while stranger.recv(1024):
                pass
            return True
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:
        return True


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("", 0)) as taken:
        number = taken.getsockname()[1]
        with (
            open_link(Join(0, "a", 1, "r"), 2, ("127.0.0.1", number)) as end,
            pytest.raises(FileError, match="host 0 cannot listen at port"),
        ):
            end.join(1.0, lambda _text: None)
