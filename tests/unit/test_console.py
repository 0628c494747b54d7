"""The console: who may write what to the job's stdout and stderr, and what a terminal gets to see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import threading

import pytest

import tf_submit
from tf_submit import Console, Task

WORKER = Task("worker", 0, "node2")


class Streams:
    """Two files in place of the job's stdout and stderr."""

    def __init__(self, folder):
        self.paths = [folder / "stdout", folder / "stderr"]
        self.fds = [os.open(path, os.O_RDWR | os.O_CREAT) for path in self.paths]

    def console(self, **options):
        return Console(stdout=self.fds[0], stderr=self.fds[1], **options)

    @property
    def texts(self):
        return [path.read_text() for path in self.paths]


@pytest.fixture
def streams(tmp_path):
    streams = Streams(tmp_path)
    yield streams
    for fd in streams.fds:
        os.close(fd)


class Terminal:
    """A terminal of 40 columns; ``fd`` is the end to write to."""

    def __init__(self):
        self.screen, self.fd = pty.openpty()
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", 24, 40, 0, 0))

    def console(self, **options):
        return Console(
            **{"color": "never", "environment": {"TERM": "xterm"}, **options}, stdout=self.fd, stderr=self.fd
        )

    def expect(self, text):
        """What is drawn next is this text; waits for it for up to 5 seconds."""
        drawn = b""
        while len(drawn) < len(text) and select.select([self.screen], [], [], 5)[0]:
            drawn += os.read(self.screen, 65536)
        assert drawn.decode() == text


@pytest.fixture
def terminal():
    terminal = Terminal()
    yield terminal
    os.close(terminal.screen)
    os.close(terminal.fd)


def speak(console):
    console.say("placement")
    console.detail("qrsh -inherit node2")
    console.warn("NSLOTS is 4")
    console.error("no host file")
    console.report(["first failure: worker:0", "  host:  node2"])


STDERR = """\
tf_submit: warning: NSLOTS is 4
tf_submit: error: no host file
tf_submit | first failure: worker:0
tf_submit |   host:  node2
"""


@pytest.mark.parametrize(
    ("verbosity", "stdout"),
    [
        (-1, ""),
        (0, "tf_submit | placement\n"),
        (1, "tf_submit | placement\ntf_submit | qrsh -inherit node2\n"),
    ],
)
def test_verbosity_rules_the_launchers_lines_but_not_warnings_errors_and_reports(streams, verbosity, stdout):
    speak(streams.console(verbosity=verbosity))
    assert streams.texts == [stdout, STDERR]


@pytest.mark.parametrize("verbosity", [-1, 0, 1])
def test_the_launchers_log_has_all_its_lines_with_their_time(streams, tmp_path, verbosity):
    console = streams.console(verbosity=verbosity)
    console.say("before there was a folder")
    console.log_to(str(tmp_path / "tf_submit.log"))
    speak(console)
    console.close()
    log = (tmp_path / "tf_submit.log").read_text()
    assert re.sub(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", log).splitlines() == [
        "before there was a folder",
        "placement",
        "qrsh -inherit node2",
        "warning: NSLOTS is 4",
        "error: no host file",
        "first failure: worker:0",
        "  host:  node2",
    ]
    assert len(re.findall(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", log)) == 7


def test_each_line_of_a_message_gets_the_prefix(streams):
    streams.console().warn("two\nlines")
    assert streams.texts[1] == "tf_submit: warning: two\ntf_submit: warning: lines\n"


def test_any_text_can_be_said(streams):
    streams.console().say("Köln \udcff \ud800")
    assert streams.texts[0] == "tf_submit | Köln \\udcff \\ud800\n"


@pytest.mark.parametrize(
    ("choice", "terminal", "environment", "colors"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {}, False),
    ],
)
def test_when_there_are_colors(choice, terminal, environment, colors):
    assert bool(tf_submit.use_color(choice, terminal, environment)) is colors


def test_a_file_gets_plain_lines_and_no_live_line(streams):
    console = streams.console(environment={"TERM": "xterm"})
    console.status("1 of 2 tasks running")
    console.say("hello")
    console.close()
    assert streams.texts == ["tf_submit | hello\n", ""]


def test_colors_always_color_prefixes_only(streams):
    console = streams.console(color="always")
    console.say("hello")
    console.warn("careful")
    assert streams.texts == [
        "\033[1mtf_submit | \033[0mhello\n",
        "\033[33mtf_submit: warning: \033[0mcareful\n",
    ]


def test_a_tasks_prefix_names_task_and_host(streams):
    assert streams.console().task_prefix(WORKER, 1) == b"worker:0@node2 | "
    colored = streams.console(color="always").task_prefix(WORKER, 1)
    assert re.fullmatch(rb"\033\[\d+mworker:0@node2 \| \033\[0m", colored)


def test_the_live_line_stays_below_all_other_lines(terminal):
    console = terminal.console()
    console.status("1 of 2 tasks running")
    terminal.expect("1 of 2 tasks running")
    console.say("hello")
    terminal.expect("\r\033[Ktf_submit | hello\r\n1 of 2 tasks running")
    console.warn("careful")
    terminal.expect("\r\033[Ktf_submit: warning: careful\r\n1 of 2 tasks running")
    console.status("2 of 2 tasks running")
    terminal.expect("\r\033[K2 of 2 tasks running")
    console.close()
    terminal.expect("\r\033[K")
    console.say("bye")
    terminal.expect("tf_submit | bye\r\n")


def test_the_live_line_fits_the_terminal(terminal):
    console = terminal.console()
    console.status("x" * 100)
    console.say("hello")
    terminal.expect("x" * 39 + "\r\033[Ktf_submit | hello\r\n" + "x" * 39)


@pytest.mark.parametrize("options", [{"environment": {"TERM": "dumb"}}, {"verbosity": -1}])
def test_a_dumb_terminal_and_a_quiet_job_have_no_live_line(terminal, options):
    console = terminal.console(**options)
    console.status("1 of 2 tasks running")
    console.warn("hello")
    terminal.expect("tf_submit: warning: hello\r\n")


def test_a_slow_reader_gets_everything_even_from_a_pipe_that_does_not_block():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    console = Console(stdout=writer)
    text = "x" * 1_000_000
    thread = threading.Thread(target=lambda: (console.say(text), os.close(writer)))
    thread.start()
    received = b""
    while piece := os.read(reader, 4096):
        received += piece
    thread.join()
    os.close(reader)
    assert received.decode() == f"tf_submit | {text}\n"


def test_a_stdout_that_cannot_be_written_is_named_once_and_the_rest_goes_on(streams, tmp_path):
    full = os.open("/dev/full", os.O_WRONLY)
    console = Console(stdout=full, stderr=streams.fds[1])
    console.log_to(str(tmp_path / "log"))
    assert console.broken == ""
    console.say("one")
    assert console.broken == "cannot write the job's standard output: No space left on device"
    console.say("two")
    console.status("three")
    console.warn("four")
    console.close()
    os.close(full)
    assert streams.texts[1] == "tf_submit: warning: four\n"
    assert len((tmp_path / "log").read_text().splitlines()) == 3


def test_a_stderr_whose_reader_has_gone_is_named():
    reader, writer = os.pipe()
    os.close(reader)
    console = Console(stderr=writer)
    console.warn("hello")
    os.close(writer)
    assert console.broken == "cannot write the job's standard error: Broken pipe"


def test_a_full_disk_below_the_launchers_log_is_a_warning(streams):
    console = streams.console()
    console.log_to("/dev/full")
    console.say("hello")
    console.say("again")
    assert streams.texts == [
        "tf_submit | hello\ntf_submit | again\n",
        "tf_submit: warning: cannot write /dev/full: No space left on device; "
        "the log ends here, the job goes on\n",
    ]
    assert console.broken == ""
