#!/usr/bin/env python3
""""eval '(exit $?0)' && eval 'exec python3 "$0" ${1+"$@"}'
exec env TF_SUBMIT_CMDLINE="`base64 -w0 /proc/$$/cmdline`" python3 $0:q
"""
# The lines above start Python when the scheduler hands this file to a shell (shell_start_mode
# posix_compliant): the first one in sh, the second one in csh, whose $argv:q would drop empty arguments.

from __future__ import annotations

import json
import os
import signal
import sys
import time

__version__ = "0.1.0"

# ============================================================================ agent
# Everything above the line "launcher" travels to the nodes and runs there: keep its imports few.


def signal_name(number: int) -> str:
    """``11`` -> "SIGSEGV"; a number without a name, as 35 on Linux, reads "signal 35"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ============================================================================ launcher
# ruff: noqa: E402 - only the launcher pays for these imports
import argparse
import collections
import itertools
import re
import select
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

# ============================================================================ errors


class UserError(Exception):
    """Something that the user can mend; the message says what and how. Ends with exit status 2."""


# ============================================================================ allocation (read)


@dataclass(frozen=True)
class Host:
    """What the scheduler granted on one host: one entry per host, its queue instances merged."""

    name: str  # exactly as in column 1 of the host file
    slots: int
    queues: tuple[str, ...] = ()  # queue instances, e.g. ("all.q@node1",)
    binding: tuple[str, ...] = ()  # column 4 of its lines, as found


@dataclass(frozen=True)
class Allocation:
    """The slots of one job. ``hosts[0]`` is the master host, where the job script runs."""

    job_id: str
    job_name: str
    hosts: tuple[Host, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ParallelEnvironment:
    """The attributes of `qconf -sp NAME` that matter here; the defaults are those of a good PE."""

    name: str = ""
    control_slaves: bool = True
    job_is_first_task: bool = False
    master_forks_slaves: bool = False
    daemon_forks_slaves: bool = False


# ============================================================================ plan


@dataclass(frozen=True)
class Task:
    """One process of the cluster spec, e.g. ``worker:0`` with one slot on node2."""

    role: str  # "ps", "worker", "chief" or "evaluator"
    index: int
    host: str
    slots: int = 1

    @property
    def name(self) -> str:
        return f"{self.role}:{self.index}"


@dataclass(frozen=True)
class Group:
    """The tasks that one agent runs, all on one host; transport is "qrsh" or "local"."""

    host: str
    tasks: tuple[Task, ...]
    transport: str = "qrsh"


@dataclass(frozen=True)
class Plan:
    tasks: tuple[Task, ...]  # in order of role (ps, chief, worker, evaluator) and index
    groups: tuple[Group, ...]
    warnings: tuple[str, ...] = ()


# ============================================================================ assign


@dataclass(frozen=True)
class Cpu:
    """One logical CPU (Linux number) with its socket, its core within the socket and its NUMA node."""

    number: int
    socket: int
    core: int
    node: int


@dataclass(frozen=True)
class Hello:
    """What an agent found on its host before anything runs there.

    ``topology`` lists the online CPUs of the whole host, ``mask`` those that the agent may use,
    ``environment`` the scheduler's variables as this agent got them (SGE_BINDING, SGE_HGR_gpu,
    CUDA_VISIBLE_DEVICES, …), ``leases`` the GPUs locked for each task of the group (``--gpus-per-task``).
    """

    host: str
    topology: tuple[Cpu, ...]
    mask: tuple[int, ...]
    ports: tuple[int, ...] = ()  # one reserved port per task of the group, in their order
    address: str = ""  # name or address by which the others reach this host
    environment: Mapping[str, str] = field(default_factory=dict)
    leases: tuple[tuple[str, ...], ...] = ()
    pid: int = 0


@dataclass(frozen=True)
class Placement:
    """Where a task runs. ``cores`` are Linux CPU numbers, None when the task is not pinned."""

    task: Task
    address: str | None = None  # "host:port"
    cores: tuple[int, ...] | None = None
    sockets: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()  # NUMA nodes of the cores
    gpus: tuple[str, ...] = ()
    threads: int = 1  # for TensorFlow's and OpenMP's thread pools


# ============================================================================ report

TIME_FORMAT = "%Y-%m-%d %H:%M:%S"

# Exit statuses by which a job script speaks to Grid Engine (qsub(1)), and what the scheduler then does.
SCHEDULER_STATUSES = {99: "runs a job again", 100: "puts a job into the error state"}

SUMMARY_HEADER = ["task", "host", "exit", "wall time", "CPU time", "CPU use", "peak memory", "restarts"]

# What the last lines or the exit of a failed task often mean.
HINTS = (
    (
        r"No module named '?(tensorflow|keras|tf_keras)\b",
        "install TensorFlow for this Python on that host, or name another Python with --python PATH",
    ),
    (
        r"Could not start gRPC server|Address already in use",
        "another program took the task's port: submit again, or choose other ports with -p PORT",
    ),
    (
        r"No space left on device|Disk quota exceeded",
        "make room on the file system that the task writes to",
    ),
    (
        r"\bSIGKILL\b|MemoryError|std::bad_alloc|Cannot allocate memory",
        "perhaps out of memory: compare its peak memory with the job's limits (qstat -j, qacct -j)",
    ),
    (
        r"\bSIGILL\b|Illegal instruction",
        "the CPU of that host may lack instructions that this TensorFlow was built for",
    ),
    (
        r"DEADLINE_EXCEEDED|failed to connect to all addresses",
        "the tasks did not reach each other: look at firewalls, http_proxy and no_proxy, or choose the "
        "network with --interface",
    ),
)


@dataclass(frozen=True)
class Outcome:
    """How one task went. ``status`` is as in subprocess: exit status, or minus the signal's number;
    None when no agent ever reported it. Times in seconds since the epoch, memory in bytes."""

    task: Task
    status: int | None = None
    started: float | None = None
    ended: float | None = None
    cpu_seconds: float = 0.0  # user and system time of the task and its children
    peak_memory: int = 0  # resident bytes of the task's process tree
    restarts: int = 0
    stopped: bool = False  # ended by the launcher on purpose (a ps when the workers are done)


@dataclass(frozen=True)
class Failure:
    """The first thing that went wrong: the root cause of the end of a job."""

    when: float
    what: str  # one line, e.g. "worker:1 on node2 was killed by SIGSEGV"
    task: Task | None = None
    host: str = ""
    status: int | None = None
    lines: tuple[str, ...] = ()  # the last lines of the task, or what its qrsh printed
    log: str = ""  # path of the log file


def exit_name(status: int) -> str:
    """How a status as in subprocess reads: ``0`` -> "0", ``-11`` -> "SIGSEGV"."""
    return str(status) if status >= 0 else signal_name(-status)


def exit_status(status: int | None) -> int:
    """The job's exit status for a task's: 128 + n for signal n, 1 for a task that never reported one.

    99 and 100 become 1: to Grid Engine they mean "run the job again" and "put it into the error state".
    """
    if status is None or status in SCHEDULER_STATUSES:
        return 1
    return status if status >= 0 else 128 - status


def duration(seconds: float) -> str:
    """``7.25`` -> "7.2 s", ``72`` -> "1 min 12 s", ``11100`` -> "3 h 05 min"."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def memory_size(size: int) -> str:
    """Bytes: ``3145728`` -> "3 MiB", ``1610612736`` -> "1.5 GiB"."""
    return f"{size / 2**20:.0f} MiB" if size < 2**30 else f"{size / 2**30:.1f} GiB"


def number_ranges(numbers: Iterable[int]) -> str:
    """``(0, 1, 2, 3, 8)`` -> "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def align(rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    """Rows of cells as lines of aligned columns; the first row is the header.

    Columns whose header is in ``right`` hold numbers and end at the same place.
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    sides = [">" if header in right else "<" for header in rows[0]]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)).rstrip()
        for row in rows
    ]


def cores_text(placement: Placement) -> str:
    """The pinned CPUs with their sockets: "0-3 (socket 0)", "0,8 (sockets 0,1)", "not pinned"."""
    if placement.cores is None:
        return "not pinned"
    cores = number_ranges(placement.cores)
    if not placement.sockets:
        return cores
    plural = "s" if len(set(placement.sockets)) > 1 else ""
    return f"{cores} (socket{plural} {number_ranges(placement.sockets)})"


def placement_table(placements: Sequence[Placement], planned: bool = False) -> list[str]:
    """Where each task runs, a line per task below a header; GPUs are a column when a task has any.

    ``planned``: before the start, when cores (and ports without ``-p``) are still to be found.
    """
    header = ["task", "host", "address", "cores", "GPUs"]
    rows = [
        [
            placement.task.name,
            placement.task.host,
            placement.address or "?",
            "?" if planned else cores_text(placement),
            ",".join(placement.gpus) or "-",
        ]
        for placement in placements
    ]
    width = len(header) if any(placement.gpus for placement in placements) else len(header) - 1
    return align([row[:width] for row in [header, *rows]])


def wall_seconds(outcome: Outcome) -> float:
    """From the start of the task to its end, over all its restarts; 0 when it never ran."""
    if outcome.started is None or outcome.ended is None:
        return 0.0
    return outcome.ended - outcome.started


def cpu_use(outcome: Outcome, cores: int) -> float | None:
    """CPU time per wall time of ``cores`` cores: 1.0 when all were busy; None when nothing ran."""
    wall = wall_seconds(outcome)
    return outcome.cpu_seconds / (wall * cores) if wall > 0 else None


def exit_text(outcome: Outcome) -> str:
    """The exit of a task as the summary names it: "0", "1", "SIGSEGV", "stopped", "lost", "never started"."""
    if outcome.status is None:
        return "never started" if outcome.started is None else "lost"
    return "stopped" if outcome.stopped else exit_name(outcome.status)


def task_cores(placements: Iterable[Placement]) -> dict[Task, int]:
    """How many cores each task has: those it is pinned to, else its slots."""
    return {
        placement.task: placement.task.slots if placement.cores is None else len(placement.cores)
        for placement in placements
    }


def summary_row(outcome: Outcome, cores: int) -> list[str]:
    """The cells of one task in the summary, in the order of SUMMARY_HEADER."""
    use = cpu_use(outcome, cores)
    return [
        outcome.task.name,
        outcome.task.host,
        exit_text(outcome),
        "-" if use is None else duration(wall_seconds(outcome)),
        "-" if use is None else duration(outcome.cpu_seconds),
        "-" if use is None else f"{use:.0%}",
        memory_size(outcome.peak_memory) if outcome.peak_memory else "-",
        str(outcome.restarts),
    ]


def summary_table(outcomes: Sequence[Outcome], placements: Iterable[Placement]) -> list[str]:
    """How each task went, a line per task below a header."""
    cores = task_cores(placements)
    rows = [summary_row(outcome, cores.get(outcome.task, outcome.task.slots)) for outcome in outcomes]
    return align([SUMMARY_HEADER, *rows], right=SUMMARY_HEADER[3:])


def counted(number: int, noun: str) -> str:
    """``(1, "host")`` -> "1 host", ``(3, "task")`` -> "3 tasks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def job_line(outcomes: Sequence[Outcome], status: int, seconds: float, folder: str) -> str:
    """The whole job on one line. ``status`` is the job's exit status, ``seconds`` its wall time."""
    verdict = {0: "succeeded", 99: "asks to be run again (exit status 99)"}
    tasks = counted(len(outcomes), "task")
    hosts = counted(len({outcome.task.host for outcome in outcomes}), "host")
    cpu = duration(sum(outcome.cpu_seconds for outcome in outcomes))
    return (
        f"the job {verdict.get(status, f'failed with exit status {status}')}: {tasks} on {hosts}, "
        f"wall time {duration(seconds)}, CPU time {cpu}; logs and summary.json are in {folder}"
    )


def status_line(outcomes: Sequence[Outcome], seconds: float) -> str:
    """What goes on, for the live line: "2 of 3 tasks running, 1 done, 1 min 12 s"."""
    running = sum(outcome.started is not None and outcome.ended is None for outcome in outcomes)
    done = sum(outcome.ended is not None for outcome in outcomes)
    parts = [f"{running} of {counted(len(outcomes), 'task')} running"]
    if done:
        parts.append(f"{done} done")
    return ", ".join([*parts, duration(seconds)])


def exit_explained(status: int) -> str:
    """The exit of a failed task, with what becomes of it where the job's exit status is another one."""
    if status in SCHEDULER_STATUSES:
        return f"{status} (the job ends with 1: Grid Engine {SCHEDULER_STATUSES[status]} at {status})"
    return exit_name(status)


def hint(failure: Failure) -> str:
    """What may be behind a failure, by what the task printed last and how it ended; "" if not known."""
    text = "\n".join([failure.what, *failure.lines])
    return next((advice for pattern, advice in HINTS if re.search(pattern, text)), "")


def failure_report(failure: Failure) -> list[str]:
    """The root cause of a failed job: what, when, where, its log file, a hint and the last lines."""
    facts = {
        "time": time.strftime(TIME_FORMAT, time.localtime(failure.when)),
        "task": failure.task.name if failure.task else "",
        "host": failure.host,
        "exit": "" if failure.status is None else exit_explained(failure.status),
        "log": failure.log,
        "hint": hint(failure),
    }
    return [
        f"first failure: {failure.what}",
        *(f"  {name + ':':6} {fact}" for name, fact in facts.items() if fact),
        *(["  last lines:"] if failure.lines else []),
        *(f"    {line}" for line in failure.lines),
    ]


def summary_json(
    job_id: str,
    outcomes: Sequence[Outcome],
    placements: Iterable[Placement],
    failure: Failure | None,
    status: int,
) -> dict[str, Any]:
    """What stands in summary.json. Times in seconds since the epoch, durations in seconds, memory in bytes;
    ``exit`` as in the summary table, ``status`` as in subprocess, null where nothing is known."""
    cores = task_cores(placements)
    return {
        "job_id": job_id,
        "status": status,
        "failure": failure_json(failure) if failure else None,
        "tasks": [outcome_json(outcome, cores.get(outcome.task, outcome.task.slots)) for outcome in outcomes],
    }


def outcome_json(outcome: Outcome, cores: int) -> dict[str, Any]:
    return {
        "role": outcome.task.role,
        "index": outcome.task.index,
        "host": outcome.task.host,
        "exit": exit_text(outcome),
        "status": outcome.status,
        "started": outcome.started,
        "ended": outcome.ended,
        "cpu_seconds": outcome.cpu_seconds,
        "cpu_use": cpu_use(outcome, cores),
        "peak_memory": outcome.peak_memory,
        "restarts": outcome.restarts,
    }


def failure_json(failure: Failure) -> dict[str, Any]:
    return {
        "when": failure.when,
        "what": failure.what,
        "task": failure.task.name if failure.task else None,
        "host": failure.host or None,
        "status": failure.status,
        "lines": list(failure.lines),
        "log": failure.log or None,
    }


# ---------------------------------------------------------------- what the job prints and keeps

CHUNK = 256 * 1024  # bytes of a task's output that are handled at once
LONGEST_LINE = 4 * 1024 * 1024  # bytes; of a longer line pieces are passed on
TAIL_LINES, TAIL_WIDTH = 10, 400  # a task's last lines in the failure report, and bytes of each
TASK_COLORS = (36, 32, 35, 34, 96, 92, 95, 94)  # ANSI; red and yellow are for errors and warnings
RED, YELLOW, BOLD = 31, 33, 1
CLEAR_LINE = b"\r\033[K"


def encode(line: str) -> bytes:
    """UTF-8, whatever is in the line: an undecodable byte of a file name reads like ``\\udcff``."""
    return line.encode(errors="backslashreplace")


def prefix_lines(prefix: bytes, lines: bytes) -> bytes:
    """Each line behind the prefix and with an end: ``(b"x | ", b"a\\nb")`` -> ``b"x | a\\nx | b\\n"``."""
    return b"".join((prefix, lines.removesuffix(b"\n").replace(b"\n", b"\n" + prefix), b"\n"))


def last_lines(output: bytes) -> tuple[str, ...]:
    """The last TAIL_LINES lines of some output, of each at most TAIL_WIDTH bytes; where a line was
    redrawn with carriage returns, as progress bars do, what was drawn last."""
    if not output:
        return ()
    lines = output.removesuffix(b"\n").split(b"\n")[-TAIL_LINES:]
    drawn = (line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines)
    return tuple(line[:TAIL_WIDTH].decode(errors="backslashreplace") for line in drawn)


def paint(text: str, color: int) -> str:
    return f"\033[{color}m{text}\033[0m"


def use_color(choice: str, terminal: bool, environment: Mapping[str, str]) -> bool:
    """``--color`` always and never decide; auto: on a terminal with colours and without NO_COLOR
    (https://no-color.org)."""
    if choice != "auto":
        return choice == "always"
    return terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def write_all(fd: int, data: bytes) -> None:
    """Write all of ``data``, however slow the other end is. OSError: it cannot be written."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:  # whoever started the job may have made the pipe non-blocking
            select.select([], [fd], [])


class LogFile:
    """A log that grows, also when a job runs again. UserError: it cannot be opened.

    On one stream the file has exactly the bytes that were written. Lines of different streams or
    processes never share a line: where one was left without an end, the end is added.
    """

    BEFORE = 0  # the stream of what another process wrote

    def __init__(self, path: str) -> None:
        self.path = path
        self.unended: int | None = None  # the stream whose line at the end of the file has no end
        try:
            self.fd: int | None = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            size = os.fstat(self.fd).st_size
            if size and os.pread(self.fd, 1, size - 1) != b"\n":
                self.unended = self.BEFORE
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None

    def write(self, stream: int, data: bytes) -> None:
        """Add data. The first write that fails raises UserError and is the last: a log may lack its
        end, not its middle."""
        if self.fd is None:
            return
        try:
            write_all(self.fd, data if self.unended in (None, stream) else b"\n" + data)
        except OSError as error:
            self.close()
            raise UserError(f"cannot write {self.path}: {error.strerror}") from None
        self.unended = None if data.endswith(b"\n") else stream

    def end_process(self) -> None:
        """What follows is written by another process, perhaps on the same stream."""
        if self.unended is not None:
            self.unended = self.BEFORE

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class Console:
    """The only writer of the job's stdout and stderr; all threads may use it.

    Lines of the launcher begin with "tf_submit". With their time they also stand in the launcher's log,
    whatever the verbosity: -1 prints only warnings, errors, reports and the tasks' lines, 1 also details.
    When stdout or stderr cannot be written any more (its reader is gone, its disk full), the write that
    finds this raises UserError; later ones are left out, so that the job can end in good order.
    """

    def __init__(
        self,
        color: str = "auto",
        verbosity: int = 0,
        stdout: int = 1,
        stderr: int = 2,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.verbosity = verbosity
        self.fds = {1: stdout, 2: stderr}
        self.colored = {
            stream: use_color(color, os.isatty(fd), environment) for stream, fd in self.fds.items()
        }
        self.live = os.isatty(stdout) and environment.get("TERM") != "dumb" and verbosity >= 0
        self.status_text = b""
        self.status_drawn = False
        self.log: LogFile | None = None
        self.unlogged = bytearray()  # the launcher's lines from before there was a log
        self.lock = threading.RLock()

    def say(self, line: str) -> None:
        self._tell(1, line, "tf_submit |", BOLD, least=0)

    def detail(self, line: str) -> None:
        self._tell(1, line, "tf_submit |", BOLD, least=1)

    def warn(self, line: str) -> None:
        self._tell(2, line, "tf_submit: warning:", YELLOW)

    def error(self, line: str) -> None:
        self._tell(2, line, "tf_submit: error:", RED)

    def report(self, lines: Iterable[str]) -> None:
        """The report of a failure: on stderr, with -q too."""
        for line in lines:
            self._tell(2, line, "tf_submit |", RED)

    def status(self, text: str) -> None:
        """Show the text as the live line at the bottom of a terminal; "" takes it away."""
        with self.lock:
            if self.live:
                columns = os.get_terminal_size(self.fds[1]).columns or 80
                self.status_text = encode(text[: columns - 1])
                self._write(1, b"")

    def log_to(self, path: str) -> None:
        """Keep the launcher's lines in this file, those from before included. UserError."""
        with self.lock:
            self.log = LogFile(path)
            self.keep(self.log, 1, bytes(self.unlogged))
            self.unlogged.clear()

    def task_prefix(self, task: Task, stream: int) -> bytes:
        """``b"worker:0@node2 | "``, in a colour of the task's own where the stream has colours."""
        name = f"{task.name}@{task.host} |"
        color = TASK_COLORS[(task.index + len(task.role)) % len(TASK_COLORS)]
        return encode(paint(name, color) if self.colored[stream] else name) + b" "

    def show(self, stream: int, prefix: bytes, lines: bytes) -> None:
        """Print lines of a task together, each behind the prefix; the last one may lack its end."""
        self._write(stream, prefix_lines(prefix, lines))

    def keep(self, log: LogFile, stream: int, lines: bytes) -> None:
        """Write lines to a log. When it cannot be written any more, a warning says so, once."""
        try:
            log.write(stream, lines)
        except UserError as error:
            self.warn(f"{error}; the log ends here, the job goes on")

    def close(self) -> None:
        with self.lock:
            self.status("")
            if self.log:
                self.log.close()

    def _tell(self, stream: int, line: str, head: str, color: int, least: int = -1) -> None:
        text = encode(line)
        prefix = encode(paint(head, color) if self.colored[stream] else head) + b" "
        with self.lock:
            self._record(prefix_lines(encode(time.strftime(TIME_FORMAT) + head[9:-1]) + b" ", text))
            if self.verbosity >= least:
                self._write(stream, prefix_lines(prefix, text))

    def _record(self, lines: bytes) -> None:
        if self.log:
            self.keep(self.log, 1, lines)
        else:
            self.unlogged += lines

    def _write(self, stream: int, data: bytes) -> None:
        with self.lock:
            if self.status_drawn:
                self._put(1, CLEAR_LINE)
            self._put(stream, data)
            if self.status_text:
                self._put(1, self.status_text)
            self.status_drawn = bool(self.status_text)

    def _put(self, stream: int, data: bytes) -> None:
        try:
            if stream in self.fds:
                write_all(self.fds[stream], data)
        except OSError as error:
            del self.fds[stream]
            self.live = self.live and stream != 1
            self.status_text = b""
            name = {1: "standard output", 2: "standard error"}[stream]
            raise UserError(f"cannot write the job's {name}: {error.strerror}") from None


class TaskLog:
    """The output of one task: whole lines go prefixed to the job's stdout or stderr, at once, and
    unchanged to the task's log file. One thread writes; memory is bounded by LONGEST_LINE per stream.
    UserError: the log cannot be opened, or the job's output cannot be written any more.
    """

    def __init__(self, task: Task, path: str, console: Console) -> None:
        self.console = console
        self.file = LogFile(path)
        self.prefixes = {stream: console.task_prefix(task, stream) for stream in (1, 2)}
        self.carries = {stream: bytearray() for stream in (1, 2)}  # begun lines
        self.recent = b""  # the end of the output, for tail()

    def write(self, stream: int, data: bytes) -> None:
        """Pass on what the task wrote to its stdout (1) or stderr (2), cut anywhere."""
        for start in range(0, len(data), CHUNK):
            self._take(stream, data[start : start + CHUNK])

    def flush(self) -> None:
        """The process has ended: pass on begun lines as well."""
        for stream, carry in self.carries.items():
            self._pass_on(stream, bytes(carry))
            carry.clear()
        self.file.end_process()

    def restart(self) -> None:
        """What follows is written by a new process of the task."""
        self.flush()
        self.recent = b""

    def tail(self) -> tuple[str, ...]:
        """The last lines that were passed on, of both streams."""
        return last_lines(self.recent)

    def close(self) -> None:
        self.flush()
        self.file.close()

    def _take(self, stream: int, data: bytes) -> None:
        carry = self.carries[stream]
        end = data.rfind(b"\n") + 1
        if end:
            self._pass_on(stream, bytes(carry) + data[:end])
            carry.clear()
        carry += data[end:]
        if len(carry) > LONGEST_LINE:
            self._pass_on(stream, bytes(carry))
            carry.clear()

    def _pass_on(self, stream: int, lines: bytes) -> None:
        if lines:
            size = TAIL_LINES * TAIL_WIDTH
            self.recent = (self.recent + prefix_lines(b"", lines[-size:]))[-size:]
            self.console.keep(self.file, stream, lines)
            self.console.show(stream, self.prefixes[stream], lines)


class JobFolder:
    """The folder of one run, e.g. ``train.tf17/``, with logs/, cluster.json and summary.json."""

    def __init__(self, path: str, job_id: str) -> None:
        self.path = path
        self.job_id = job_id

    @classmethod
    def create(cls, job_name: str, job_id: str, parent: str = "") -> JobFolder:
        """The folder of a job of the scheduler; a job that runs again finds its own. UserError."""
        folder = cls(os.path.join(parent, f"{job_name}.tf{job_id}"), job_id)
        folder._make(reuse=True)
        return folder

    @classmethod
    def create_local(cls, job_name: str, parent: str = "") -> JobFolder:
        """The folder of a run without scheduler: job id "local1", or the next that is free. UserError."""
        folders = (
            cls(os.path.join(parent, f"{job_name}.tflocal{number}"), f"local{number}")
            for number in itertools.count(1)
        )
        return next(folder for folder in folders if folder._make(reuse=False))

    def log_path(self, name: str) -> str:
        """``"worker-0"`` -> ``"train.tf17/logs/worker-0.log"``."""
        return os.path.join(self.path, "logs", f"{name}.log")

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write e.g. cluster.json so that a reader finds all of it or the former one. UserError."""
        path = os.path.join(self.path, name)
        try:
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump(value, file, indent=2)
                file.write("\n")
            os.replace(f"{path}.new", path)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None

    def _make(self, reuse: bool) -> bool:
        """Make the folder; False when it is there and is not to be used again."""
        try:
            if not reuse:
                os.mkdir(self.path)
            os.makedirs(os.path.join(self.path, "logs"), exist_ok=True)
        except OSError as error:
            if isinstance(error, FileExistsError) and not reuse:
                return False
            raise UserError(
                f"cannot make the job's folder {self.path}: {error.strerror}; submit from a folder "
                "that you can write to on the hosts, or name one with qsub -wd FOLDER"
            ) from None
        return True


# ============================================================================ command line


@dataclass(frozen=True)
class Options:
    """The command line. The defaults stand here and nowhere else."""

    script: tuple[str, ...] = ()  # SCRIPT or COMMAND and its arguments
    local: int | None = None  # number of tasks on this machine, without a scheduler
    # roles
    ps: int = 1
    chief: bool = False
    evaluator: bool = False
    spread_ps: bool = False
    slots_per_task: int = 1
    # network
    port: int | None = None  # base port, upward; None: the kernel chooses
    interface: str | None = None
    # cores and GPUs
    bind: str = "auto"
    membind: bool = False
    gpus_per_task: int = 0
    gpu_resource: str = "gpu"
    share_gpus: bool = False
    # script
    python: str = sys.executable
    tf_config_only: bool = False
    # start and end; times in seconds
    per_host: bool = False
    start_timeout: float = 120.0
    lost_after: float = 60.0
    grace: float = 10.0
    stop_signal: int = signal.SIGTERM
    restarts: int = 0
    on_failure: str = "stop"
    success: str = "all"
    requeue: int = 0
    # output
    tensorboard: str | None = None
    color: str = "auto"
    verbosity: int = 0  # -q: -1, -v: 1
    dry_run: bool = False
    json: bool = False
    check: bool = False
