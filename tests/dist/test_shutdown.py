"""How processes end: handlers of signals are set, restored, and never those of somebody else."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.dist.shutdown import delay_sigterm, sigterm_as_ctrl_c

NUMBERS = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """The default handlers, and after the test those from before."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in NUMBERS]


def on_thread(call: Callable[[], None]) -> None:
    """Call on another thread, which must not fail."""
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert errors == []


def own_handler(_number: int, _frame: object) -> None:
    raise AssertionError("nobody sends this signal")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_interrupts_as_ctrl_c_does(number: signal.Signals) -> None:
    def run() -> None:
        with sigterm_as_ctrl_c():
            signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert handlers() == [signal.SIG_DFL, signal.SIG_DFL]


def test_handlers_of_the_user_are_restored() -> None:
    signal.signal(signal.SIGTERM, own_handler)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with sigterm_as_ctrl_c():
        assert own_handler not in handlers()
        assert signal.SIG_IGN not in handlers()
    assert handlers() == [own_handler, signal.SIG_IGN]


def test_another_thread_changes_no_handler() -> None:
    def run() -> None:
        with sigterm_as_ctrl_c():
            assert handlers() == [signal.SIG_DFL, signal.SIG_DFL]
        delay_sigterm(str)()

    on_thread(run)
    assert handlers() == [signal.SIG_DFL, signal.SIG_DFL]


def test_a_delay_is_undone() -> None:
    restore = delay_sigterm(str)
    assert handlers()[0] not in (signal.SIG_DFL, signal.SIG_IGN)
    assert handlers()[1] is signal.SIG_DFL
    on_thread(restore)  # only the main thread may restore it
    assert handlers()[0] is not signal.SIG_DFL
    restore()
    assert handlers()[0] is signal.SIG_DFL


def test_a_delay_replaces_no_handler() -> None:
    signal.signal(signal.SIGTERM, own_handler)
    restore = delay_sigterm(str)
    assert handlers()[0] is own_handler
    restore()
    assert handlers()[0] is own_handler
    # A handler that was set later stays, too.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    restore = delay_sigterm(str)
    signal.signal(signal.SIGTERM, own_handler)
    restore()
    assert handlers()[0] is own_handler


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import os, signal, sys, time\nfrom penstock.dist import shutdown\n" + code]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_sigterm_ends_the_process_later_with_its_last_message() -> None:
    code = """
shutdown.SIGTERM_DELAY_S = 0.3
shutdown.delay_sigterm(lambda: "what I did\\n")
os.kill(os.getpid(), signal.SIGTERM)
print("still running", flush=True)
time.sleep(30)
"""
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "still running\n", "what I did\n")


def test_a_process_that_ends_before_the_delay_does_not_wait_for_it() -> None:
    code = """
shutdown.SIGTERM_DELAY_S = 3600.0
shutdown.delay_sigterm(lambda: "what I did\\n")
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_exit_at_once_writes_what_is_buffered_and_skips_the_rest() -> None:
    code = """
import atexit
atexit.register(print, "clean-up")
print("out", end="")
print("error", end="", file=sys.stderr)
shutdown.exit_now(3)
"""
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out", "error")


def test_an_exit_at_once_does_not_need_its_streams() -> None:
    assert run("sys.stdout.close(); shutdown.exit_now(3)").returncode == 3
    code = """
reading, writing = os.pipe()
os.close(reading)
sys.stdout = os.fdopen(writing, "w")
sys.stdout.write("lost")
shutdown.exit_now(3)
"""
    assert run(code).returncode == 3


def test_an_exit_with_a_message_does_not_wait_for_standard_output() -> None:
    # The main thread has a full pipe and holds the lock of standard output.
    code = """
import threading
threading.Timer(0.2, lambda: shutdown.exit_with_message("the end\\n", 4)).start()
reading, writing = os.pipe()
sys.stdout = os.fdopen(writing, "w")
sys.stdout.write("x" * 10_000_000)
"""
    done = run(code)
    assert (done.returncode, done.stderr) == (4, "the end\n")
    assert run("sys.stderr.close(); shutdown.exit_with_message('the end', 4)").returncode == 4
