#!/usr/bin/env python3
"""true"
eval 'test "$?shell" = 1' || eval 'file="${0##-*}" && exec python3 "${file:-$JOB_SCRIPT}" ${1+"$@"}'
exec env TF_SUBMIT_CMDLINE="`base64 -w0 /proc/$$/cmdline`" python3 $JOB_SCRIPT:q
"""
# Where the scheduler hands this file to a shell (shell_start_mode posix_compliant, or script_from_stdin, in
# which $0 is "-sh"), the lines above start Python: the second one in sh; the third one in csh, which has a
# variable "shell", and whose $argv:q would drop empty arguments.

from __future__ import annotations

import collections
import contextlib
import fcntl
import glob
import importlib.util
import itertools
import json
import math
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time

TYPE_CHECKING = False  # importing typing would cost every agent some milliseconds
if TYPE_CHECKING:
    import resource
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import IO, Any, NoReturn

__version__ = "0.1.0"
__doc__ = """Runs a TensorFlow script as parameter servers and workers on the slots of a Grid Engine job.

The launcher, below the line "launcher", runs as the job script: it reads what was granted, plans the tasks
and starts an agent for each, by default one `qrsh -inherit` and one thread per task. The agent, above that
line, runs on the node: it finds out what is there, runs the task and passes on its output.
"""

# ============================================================================ frames
# Everything above the line "launcher" travels to the nodes and runs there: keep its imports few.

FRAME = struct.Struct(">cII")  # kind, number of the task within its agent, bytes that follow
MESSAGE, STDOUT, STDERR = b"M", b"1", b"2"  # a JSON object, or bytes that the task wrote
READY = "tf_submit agent"  # with a NUL before it this ends the noise of a login shell
MARK = b"\0" + READY.encode() + b"\n"
# Bytes that are read and passed on at once. The shepherd at the end of a qrsh reads one less than a pipe
# holds: a frame of that size goes in one piece through all pipes.
CHUNK = (1 << 16) - 1
LARGEST_FRAME = 1 << 28  # bytes; anything longer is no frame
AT_ONCE = 256  # bytes; of less output the shepherd waits 10 ms for more


def frame(kind: bytes, task: int, payload: bytes) -> bytes:
    """Head and payload of one frame."""
    return FRAME.pack(kind, task, len(payload)) + payload


def message(type_: str, **fields: Any) -> bytes:
    """A control message as a frame, e.g. ``message("ping")``.

    Arguments, variables and paths travel as their bytes: the other end may have another locale.
    """
    text = os.fsencode(json.dumps({"type": type_, **fields}, ensure_ascii=False))
    return frame(MESSAGE, 0, text.ljust(AT_ONCE))


class Decoder:
    """Cuts a stream that arrives in pieces of any size into frames ``(kind, task, payload)``."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
        """The frames that ``data`` completes. Raises ValueError at bytes that start no frame."""
        data, at = self.rest + data if self.rest else data, 0
        while len(data) - at >= FRAME.size:
            kind, task, length = FRAME.unpack_from(data, at)
            if kind not in (MESSAGE, STDOUT, STDERR) or length > LARGEST_FRAME:
                raise ValueError(f"no frame starts with {data[at : at + FRAME.size]!r}")
            end = at + FRAME.size + length
            if end > len(data):
                break
            yield kind, task, data[at + FRAME.size : end]
            at = end
        self.rest = data[at:]


class Outbox:
    """What waits for room in a pipe that is not waited for."""

    def __init__(self) -> None:
        self.parts: collections.deque[memoryview] = collections.deque()
        self.size = 0  # bytes

    def add(self, data: bytes) -> None:
        """``data`` is not copied: many may send the same."""
        self.parts.append(memoryview(data))
        self.size += len(data)

    def write(self, fd: int) -> None:
        """Writes what the pipe takes. OSError: nobody will ever read it."""
        with contextlib.suppress(BlockingIOError):
            while self.parts:
                written = os.write(fd, self.parts[0])
                self.parts[0] = self.parts[0][written:]
                self.size -= written
                if not self.parts[0]:
                    self.parts.popleft()

    def clear(self) -> None:
        self.parts.clear()
        self.size = 0


# ============================================================================ agent: look at the host


def read_number(path: str, otherwise: int) -> int:
    """The number in a one-line file of /sys; ``otherwise`` where a kernel does not have it."""
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return otherwise


def parse_ranges(text: str) -> list[int]:
    """Numbers of a kernel list, sysfs(5): ``parse_ranges("0-2,8")`` gives ``[0, 1, 2, 8]``."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def read_ranges(path: str) -> list[int]:
    """The numbers of a list file of /sys; none where there is no such file."""
    try:
        with open(path) as file:
            return parse_ranges(file.read())
    except (OSError, ValueError):
        return []


def topology(root: str = "/sys/devices/system") -> list[tuple[int, int, int, int]]:
    """(CPU, socket, core, NUMA node) of every online CPU of this host.

    A core is known by its first CPU, for the kernel's core_id may repeat in another die of the socket.
    """
    nodes = {}
    for node in read_ranges(f"{root}/node/online"):
        nodes.update(dict.fromkeys(read_ranges(f"{root}/node/node{node}/cpulist"), node))
    cpus = read_ranges(f"{root}/cpu/online") or sorted(os.sched_getaffinity(0))
    return [
        (
            cpu,
            max(0, read_number(f"{root}/cpu/cpu{cpu}/topology/physical_package_id", 0)),  # -1: unknown
            min([cpu, *read_ranges(f"{root}/cpu/cpu{cpu}/topology/thread_siblings_list")]),
            nodes.get(cpu, 0),
        )
        for cpu in cpus
    ]


class RefusalError(Exception):
    """Why no task can run on this host; the launcher shows the text."""


def interfaces() -> dict[str, list[str]]:
    """The addresses of each network interface that is up: IPv4 before IPv6, no link-local ones."""
    import psutil

    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    found = {}
    for name, addresses in psutil.net_if_addrs().items():
        usable = [a for a in addresses if a.family in (socket.AF_INET, socket.AF_INET6)]
        usable.sort(key=lambda a: a.family != socket.AF_INET)
        if name in up:
            found[name] = [a.address for a in usable if not a.address.startswith("fe80:")]
    return {name: addresses for name, addresses in found.items() if addresses}


def choose_address(wish: str, found: dict[str, list[str]]) -> str:
    """The address on the interface or in the subnet that the user wishes.

    ``choose_address("10.1.0.0/16", {"ib0": ["10.1.0.7"]})`` gives ``"10.1.0.7"``. Raises RefusalError.
    """
    import ipaddress

    if wish in found:
        return found[wish][0]
    with contextlib.suppress(ValueError):
        subnet = ipaddress.ip_network(wish, strict=False)
        for address in sum(found.values(), []):
            if ipaddress.ip_address(address) in subnet:
                return address
    listed = ", ".join(f"{name} ({', '.join(addresses)})" for name, addresses in found.items())
    raise RefusalError(f"no interface {wish} here; there are: {listed}")


def own_address(host: str, wish: str | None) -> str:
    """How the others reach this host: by the wished interface, else by its name, else by an address."""
    if wish:
        return choose_address(wish, interfaces())
    try:
        socket.getaddrinfo(host, None)
        return host
    except OSError:
        others = [a for name, found in interfaces().items() if name != "lo" for a in found]
        if not others:
            raise RefusalError(f"the name {host} does not resolve here, and there is no network") from None
        return others[0]


def with_port(address: str, port: int) -> str:
    """``with_port("fd00::1", 2222)`` gives ``"[fd00::1]:2222"``."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def try_port(port: int) -> socket.socket | None:
    """Reserves a TCP port (0: any free one) on all addresses, or returns None if it is taken.

    No other program can bind the port, until ``share_port``: the socket is bound without SO_REUSEADDR.
    """
    family = socket.AF_INET6 if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6") else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            reserved.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        reserved.bind(("", port))
    except OSError:
        reserved.close()
        return None
    return reserved


def share_port(reserved: socket.socket) -> None:
    """Lets a program that sets SO_REUSEADDR, as TensorFlow's server does, bind a reserved port; no other."""
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def reserve_ports(base: int | None, count: int) -> list[socket.socket]:
    """One reserved port per task: upward from ``base``, else of the kernel's choice. Raises RefusalError."""
    found: list[socket.socket] = []
    for port in range(base, 65536) if base else [0] * count:
        if len(found) == count:
            break
        reserved = try_port(port)
        if reserved:
            found.append(reserved)
    if len(found) < count:
        raise RefusalError(f"no free port from {base} upward" if base else "no free port")
    return found


# ============================================================================ agent: GPUs without ids


def granted_ids(text: str) -> list[str]:
    """The ids in a grant, split by spaces or commas; amounts are no ids.

    ``granted_ids("gpu0 1")`` gives ``["gpu0", "1"]``, ``granted_ids("2.000000")`` gives ``[]``.
    """
    words = text.replace(",", " ").split()
    return [word for word in words if word != "NONE" and not is_amount(word)]


def is_amount(word: str) -> bool:
    """``is_amount("2.000000")``: what a consumable without ids has instead of them."""
    return "." in word and word.replace(".", "").isdigit()


def are_gpus_given(environ: Mapping[str, str], resource: str) -> bool:
    """Whether the scheduler, or the site, has said which GPUs a process has, even if none."""
    return "CUDA_VISIBLE_DEVICES" in environ or bool(granted_ids(environ.get(f"SGE_HGR_{resource}", "")))


LEASES = "/tmp/tf_submit-gpus"  # one file per device; a lease is a flock on it, gone with its holder


def visible_gpus() -> list[str]:
    """Numbers of this host's NVIDIA devices, in bus order, less those that a process uses already."""
    try:
        import pynvml

        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
        used = [bool(pynvml.nvmlDeviceGetComputeRunningProcesses(device)) for device in devices]
        return [str(n) for n, in_use in enumerate(used) if not in_use]
    except Exception:  # no NVML, no driver, or one that answers otherwise: count the device files
        return [str(number) for number in range(len(glob.glob("/dev/nvidia[0-9]*")))]


def lease(device: str) -> int | None:
    """Locks a device of this host for this agent; None when another one holds it."""
    path = os.path.join(LEASES, device)
    try:
        file = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    except PermissionError:  # fs.protected_regular: another user's file in a sticky folder
        file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file
    except OSError:
        os.close(file)
        return None


def lease_gpus(wanted: list[int]) -> list[list[str]]:
    """Leases ``wanted[i]`` devices for task i; a list may be shorter than wanted when all are taken."""
    if not any(wanted):
        return [[] for _ in wanted]
    old = os.umask(0)
    os.makedirs(LEASES, 0o1777, exist_ok=True)
    # Whoever tidies /tmp leaves a locked folder alone; without its file a lease would be none: tmpfiles.d(5).
    fcntl.flock(os.open(LEASES, os.O_RDONLY), fcntl.LOCK_SH)
    free = (device for device in visible_gpus() if lease(device) is not None)
    leased = [list(itertools.islice(free, count)) for count in wanted]
    os.umask(old)
    return leased


# ============================================================================ agent: what tasks are told


class ClusterSpec:
    """The addresses of a job by role, without the evaluator, and the texts that its tasks need, made once.

    It travels to each agent once; what differs from task to task is made there.
    """

    def __init__(self, addresses: Mapping[str, Sequence[str]], evaluator: str = "") -> None:
        self.addresses = addresses  # {"ps": ["node1:2222"], "worker": ["node2:2222", …]}
        self.evaluator = evaluator  # its address, "" when there is none
        self.text = json.dumps(addresses, separators=(",", ":"))
        self.ps_hosts = ",".join(addresses.get("ps", ()))
        # The chief first: between ps and workers of old scripts, worker 0 is the chief.
        self.worker_hosts = ",".join([*addresses.get("chief", ()), *addresses.get("worker", ())])


def tf_config(cluster: ClusterSpec, role: str, index: int) -> str:
    """The value of TF_CONFIG. An evaluator is in a cluster of its own, as TensorFlow wants it, since it
    takes no part in the training."""
    text = cluster.text
    if role == "evaluator":
        text = json.dumps({"evaluator": [cluster.evaluator]}, separators=(",", ":"))
    return f'{{"cluster":{text},"task":{{"type":"{role}","index":{index}}}}}'


PLACEHOLDERS = ("{ps_hosts}", "{worker_hosts}", "{job_name}", "{task_index}")


def script_arguments(
    arguments: Sequence[str], cluster: ClusterSpec, role: str, index: int, tf_config_only: bool = False
) -> list[str]:
    """The arguments of a task's script: placeholders filled in, else the classic flags appended.

    "--job_name={job_name}" becomes "--job_name=worker"; other braces stay as they are.
    """
    if tf_config_only:
        return [*arguments]
    job_name, task_index = classic_role(cluster, role, index)
    if not any(placeholder in argument for argument in arguments for placeholder in PLACEHOLDERS):
        servers = ["-s", cluster.ps_hosts] if cluster.ps_hosts else []
        workers = ["-w", cluster.worker_hosts]
        return [*arguments, *servers, *workers, "--job_name", job_name, "--task_index", task_index]
    values = dict(zip(PLACEHOLDERS, (cluster.ps_hosts, cluster.worker_hosts, job_name, task_index)))
    pattern = re.compile("|".join(map(re.escape, PLACEHOLDERS)))
    return [pattern.sub(lambda found: values[found[0]], argument) for argument in arguments]


def classic_role(cluster: ClusterSpec, role: str, index: int) -> tuple[str, str]:
    """Job name and task index where there is no chief: the chief is worker 0 and the others follow it."""
    if role == "chief":
        return "worker", "0"
    shift = len(cluster.addresses.get("chief", ())) if role == "worker" else 0
    return role, str(index + shift)


# ============================================================================ agent: processes


def thread_ids(pid: int) -> list[str]:
    """The threads of a process, none if it has ended."""
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """All living descendants of a process, from /proc, children before grandchildren.

    Processes with hundreds of threads are looked through time and again, so files are read without a buffer.
    """
    found: list[int] = []
    for thread in thread_ids(pid):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", 0) as file:
            for child in file.read().split():
                found += [int(child), *descendants(int(child))]
    return found


def send_signal(pids: Iterable[int], number: int) -> None:
    """Sends a signal to each process that still lives."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def is_stopped(pid: int) -> bool:
    """Whether a process is suspended: state T in proc_pid_stat(5)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def group_of(pid: int) -> int:
    """The process group of a process, 0 if it has ended."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def keep_alive(connection: socket.socket, seconds: float) -> None:
    """Has the kernel probe a connection, so that it breaks when so long nobody answers: tcp(7)."""
    idle = min(max(int(seconds / 2), 2), 32767)  # the kernel's limit
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, idle // 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)


def adopt_orphans() -> None:
    """Makes orphaned descendants children of this process: PR_SET_CHILD_SUBREAPER of prctl(2)."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def kill_descendants() -> None:
    """Kills all descendants of this process, adopted ones and those that they start meanwhile too."""
    with contextlib.suppress(ChildProcessError):
        while True:
            send_signal(descendants(os.getpid()), signal.SIGKILL)
            os.waitpid(-1, 0)


def guard() -> int:
    """Splits this process in two, so that whichever is killed, the other one ends what it left behind.

    The first stays what the scheduler knows: it is signalled, suspended and killed as the task. The second,
    the agent, continues here, in a session of its own. Each adopts the orphans of the tasks, as long as it
    is the nearest one alive. Returns a file descriptor that reads end-of-file when the guardian is gone.
    """
    gone, alive = os.pipe()
    agent = os.fork()
    adopt_orphans()
    if agent:
        os.close(gone)
        watch_over(agent)
    os.close(alive)
    os.setsid()
    return gone


def watch_over(agent: int) -> None:
    """The guardian's life: waits for the agent, kills what it left, exits with its status."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # the launcher gets them as well, and decides
    signal.signal(signal.SIGTERM, lambda *_: send_signal([agent], signal.SIGTERM))
    os.closerange(0, 2)
    status = os.waitstatus_to_exitcode(os.waitpid(agent, 0)[1])
    kill_descendants()
    os._exit(exit_code(status))


class Child:
    """One task of this agent, over all its starts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.pipes: set[int] = set()  # those that are still open
        self.status: int | None = None  # as in subprocess, once the process has ended
        self.cpu, self.memory = 0.0, 0  # CPU seconds, peak resident bytes of the process tree
        self.before = 0.0  # CPU seconds of the processes before this one
        self.stop_asked = False
        self.deadline: float | None = None  # when to lose patience: with the process, or with its pipes

    @property
    def running(self) -> bool:
        return self.process is not None and self.status is None

    def tree(self) -> list[int]:
        """Process ids of the running task and its descendants."""
        return [self.process.pid, *descendants(self.process.pid)] if self.process and self.running else []

    def signal(self, number: int) -> None:
        """Signals the task's process group, and those descendants that left it."""
        pids = self.tree()
        if pids:
            strays = [pid for pid in pids if group_of(pid) != pids[0]]
            send_signal([-pids[0], *strays], number)

    def sample(self) -> None:
        """Looks at the CPU seconds so far and the resident bytes of the process tree."""
        import psutil

        cpu, memory = self.before, 0
        for pid in self.tree():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                cpu += sum(process.cpu_times()[:4])  # user, system and those of children that ended
                memory += process.memory_info().rss
        self.cpu, self.memory = max(self.cpu, cpu), max(self.memory, memory)

    def end(self, process: subprocess.Popen[bytes], status: int, used: resource.struct_rusage) -> None:
        """The process has ended, as wait4(2) says."""
        self.status = process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu = max(self.cpu, self.before + used.ru_utime + used.ru_stime)
        self.memory = max(self.memory, used.ru_maxrss * 1024)


class Agent:
    """Serves the launcher: says what it found on its host, runs tasks, passes on their output.

    One thread and one selector, which holds another one with the tasks' pipes. Output waits in ``unsent``
    while the launcher is slow; when that is full, the pipes are left alone, so that a task waits as it would
    for a slow terminal. They are left alone for a moment as well where little comes from many tasks: to wake
    up for every line takes more time than the line.
    """

    FULL = 1 << 20  # bytes
    LITTLE = 1 << 16  # bytes per tick
    GATHER = 0.002  # seconds to leave the pipes alone for every task but the first
    LONGEST_GATHER = 0.1  # seconds to leave them alone, however many tasks
    TICK = 1.0  # seconds between two looks at the guardian and at the launcher's silence
    SAMPLE = 30.0  # seconds between two looks at what the tasks use
    DRAIN = 1.0  # seconds for pipes that a task's descendants keep open after its end

    def __init__(self, guardian_gone: int) -> None:
        self.decoder = Decoder()
        self.unsent = Outbox()
        self.children: list[Child] = []
        self.ports: list[socket.socket] = []  # held as long as the agent lives
        self.cluster = ClusterSpec({})
        self.common: dict[str, Any] = {"grace": 0.0, "lost_after": math.inf, "stop_signal": signal.SIGTERM}
        self.lifeline: socket.socket | None = None  # to the launcher's host
        self.finished = self.suspended = self.lost = self.reading = False
        self.heard = self.ticked = time.monotonic()
        self.sampled = -math.inf
        self.read_at = 0.0  # when to look at the pipes again
        self.passed = self.passed_before = 0  # bytes of output since the last tick, and in the one before
        self.selector = selectors.DefaultSelector()
        self.outputs = selectors.DefaultSelector()  # the tasks' pipes; in the other one while they are read
        self.listen(guardian_gone, lambda: self.lose(guardian_gone))
        self.listen(0, lambda: self.obey(os.read(0, CHUNK)))
        os.set_blocking(1, False)

    def listen(self, fd: int, handler: Callable[[], None]) -> None:
        self.selector.register(fd, selectors.EVENT_READ, handler)

    def serve(self, first: bytes) -> int:
        """Runs until the launcher says bye, or is lost and all tasks have ended; returns an exit status.

        ``first`` is what arrived together with this program."""
        self.catch_signals()
        self.obey(first)
        while not self.finished:
            for key, _ in self.selector.select(self.patience()):
                key.data()
            self.tick()
        kill_descendants()
        failed = [child.status for child in self.children if child.status and not child.stop_asked]
        return exit_code(failed[0]) if failed else int(self.lost)

    def catch_signals(self) -> None:
        """A child's end and SIGTERM wake the selector; the other signals are the launcher's business.

        Grid Engine sends SIGUSR1 and SIGUSR2 to every process of a task: the tasks inherit that they are
        ignored.
        """
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, self.overhear)
        signal.signal(signal.SIGTERM, lambda *_: self.stop(self.children))
        self.listen(read, lambda: self.reap(os.read(read, CHUNK)))

    def overhear(self, _number: int, _frame: object) -> None:
        """A handler that does nothing: unlike what is ignored, the tasks do not inherit it."""

    # ---- clock

    def patience(self) -> float:
        """Seconds until something has to be done though nothing happens."""
        now = time.monotonic()
        deadlines = [child.deadline - now for child in self.children if child.deadline]
        if not self.reading and not self.full:
            deadlines.append(self.read_at - now)
        return max(0.0, min([self.TICK, *deadlines]))

    def tick(self) -> None:
        """Does what is due."""
        now = time.monotonic()
        for child in self.children:
            if child.deadline and now >= child.deadline:
                child.deadline = None
                self.lose_patience(child)
        if now - self.ticked >= self.TICK:
            self.look_around(now)
        self.look_at_pipes(now >= self.read_at and not self.full)
        if self.lost and not any(child.running for child in self.children):
            self.finished = True

    def look_around(self, now: float) -> None:
        """Notices that the job was suspended or resumed, and that the launcher is lost.

        Time in which this process itself or its guardian was stopped is nobody's silence.
        """
        stopped = is_stopped(os.getppid())
        if stopped or now - self.ticked > 5 * self.TICK:
            self.heard += now - self.ticked
        self.ticked = now
        self.passed, self.passed_before = 0, self.passed
        silence = now - self.heard
        if self.lost:
            return
        if self.lifeline is None and silence > self.common["lost_after"]:
            self.lose(None)
        else:
            self.suspend(stopped or (self.lifeline is not None and silence > self.common["suspended_after"]))

    def suspend(self, suspended: bool) -> None:
        """Stops the tasks, or lets them go on."""
        if suspended != self.suspended:
            self.suspended = suspended
            for child in self.children:
                child.signal(signal.SIGSTOP if suspended else signal.SIGCONT)

    def tie(self, host: str, port: int) -> None:
        """Connects to the launcher: it may be silent because the job is suspended (Grid Engine stops only
        the job script and its qrsh), but then its kernel still answers for it."""
        with contextlib.suppress(OSError):  # a firewall, say: then silence alone has to do
            self.lifeline = socket.create_connection((host, port), timeout=2.0)
            keep_alive(self.lifeline, self.common["lost_after"])
            self.listen(self.lifeline.fileno(), self.untie)

    def untie(self) -> None:
        if self.lifeline:
            self.selector.unregister(self.lifeline)
            self.lifeline.close()
            self.lifeline = None

    def lose(self, fd: int | None) -> None:
        """The launcher or the guardian is gone: end the tasks; nobody is there for their output."""
        if fd is not None:
            self.selector.unregister(fd)
        self.lost = True
        self.flush()
        self.stop(self.children)

    # ---- to the launcher

    def say(self, type_: str, **fields: Any) -> None:
        self.send(message(type_, **fields))

    def send(self, data: bytes) -> None:
        self.unsent.add(data)
        self.flush()

    def flush(self) -> None:
        """Writes what the pipe takes; the selector says when there is room for more."""
        try:
            if not self.lost:
                self.unsent.write(1)
        except OSError:
            self.lost = True
        if self.lost:
            self.unsent.clear()
        watched = 1 in self.selector.get_map()
        if self.unsent.size and not watched:
            self.selector.register(1, selectors.EVENT_WRITE, self.flush)
        elif watched and not self.unsent.size:
            self.selector.unregister(1)

    @property
    def full(self) -> bool:
        return self.unsent.size > self.FULL

    # ---- from the launcher

    def obey(self, data: bytes) -> None:
        """Carries out the messages that ``data`` completes; no data means that the launcher is gone."""
        self.heard = time.monotonic()
        if not data:
            self.lose(0)
        for _, _, payload in self.decoder.feed(data):
            order = json.loads(os.fsdecode(payload))
            getattr(self, "do_" + order.pop("type"))(**order)

    def do_greet(
        self,
        host: str,
        port: int | None,
        interface: str | None,
        gpus: list[int],
        lifeline: tuple[str, int],
        **common: Any,
    ) -> None:
        """Looks at the host, reserves a port and GPUs for each task, and says hello, or why not."""
        self.common.update(common)
        if signal.getsignal(common["stop_signal"]) == signal.SIG_IGN:
            signal.signal(common["stop_signal"], self.overhear)
        self.children = [Child(number) for number in range(len(gpus))]
        try:
            self.say("hello", **self.look(host, port, interface, gpus))
        except (RefusalError, OSError) as error:
            self.say("refuse", why=str(error))
        self.tie(*lifeline)

    def look(self, host: str, port: int | None, interface: str | None, gpus: list[int]) -> dict[str, Any]:
        if importlib.util.find_spec("psutil") is None:  # imported where it is needed, which may be never
            cure = f"install psutil for {sys.executable}, or name another Python with --python PATH"
            raise RefusalError(f"no module psutil here; {cure}")
        given = are_gpus_given(dict(os.environ), self.common["gpu_resource"])
        self.ports = reserve_ports(port, len(gpus))
        return {
            "address": own_address(host, interface),
            "ports": [reserved.getsockname()[1] for reserved in self.ports],
            "topology": topology(),
            "mask": sorted(os.sched_getaffinity(0)),
            "environment": {k: v for k, v in os.environ.items() if k.startswith(("SGE_", "CUDA_"))},
            "leases": lease_gpus([0] * len(gpus) if given else gpus),
            "pid": os.getpid(),
        }

    def do_ping(self) -> None:
        now = time.monotonic()
        if now - self.sampled >= self.SAMPLE:
            self.sampled = now
            for child in self.children:
                child.sample()
        self.say("pong", usage=[(child.cpu, child.memory) for child in self.children])

    def do_share(self, addresses: dict[str, list[str]], evaluator: str, **common: Any) -> None:
        """Keeps what the tasks of the job have in common: cluster spec, command, environment, folder."""
        self.cluster = ClusterSpec(addresses, evaluator)
        self.common.update(common)

    def do_run(self, task: int, **order: Any) -> None:
        """Starts a task, for the first time or again."""
        child = self.children[task]
        child.status = child.deadline = None
        child.stop_asked, child.before = False, child.cpu
        if self.ports:  # none on a host that refused: the task of --check runs there all the same
            share_port(self.ports[task])
        try:
            child.process = self.spawn(**order)
        except OSError as error:
            used = {"cpu": child.cpu, "memory": child.memory}
            self.say("exit", task=task, status=127, **used, why=f"cannot start: {error}")
            return
        self.forward(child, STDOUT, child.process.stdout)
        self.forward(child, STDERR, child.process.stderr)
        self.say("started", task=task, pid=child.process.pid)

    def spawn(
        self,
        role: str,
        index: int,
        env: dict[str, str],
        cores: list[int] | None,
        nodes: list[int],
    ) -> subprocess.Popen[bytes]:
        """The task's process, in a session of its own, on its cores and NUMA nodes. Raises OSError."""
        common = self.common
        arguments = script_arguments(common["arguments"], self.cluster, role, index, common["tf_config_only"])
        config = {"TF_CONFIG": tf_config(self.cluster, role, index)}
        with confined(cores, nodes) as trouble:
            if trouble:
                self.say("note", text=f"memory is not bound to NUMA nodes (--membind): {trouble}")
            return subprocess.Popen(
                [*common["command"], *arguments],
                cwd=common["cwd"],
                env={**os.environ, **common["env"], **config, **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )

    def do_stop(self, tasks: list[int]) -> None:
        self.stop([self.children[number] for number in tasks])

    def do_kill(self) -> None:
        """Ends the tasks without grace."""
        for child in self.children:
            child.signal(signal.SIGKILL)

    def do_bye(self) -> None:
        """The launcher has all that was sent; whatever still runs is the guardian's to kill."""
        self.finished = True

    # ---- tasks

    def stop(self, children: list[Child]) -> None:
        """Asks tasks, once, to end; after the grace time they are killed."""
        for child in children:
            if child.running and not child.stop_asked:
                child.stop_asked = True
                child.signal(self.common["stop_signal"])
                child.signal(signal.SIGCONT)
                child.deadline = time.monotonic() + self.common["grace"]

    def forward(self, child: Child, kind: bytes, pipe: IO[bytes] | None) -> None:
        """Passes on what comes through a pipe of the task until its end."""
        fd = pipe.fileno() if pipe else -1

        def read() -> None:
            data = os.read(fd, CHUNK - FRAME.size)
            self.passed += len(data)
            if data:
                self.send(frame(kind, child.number, data))
            else:
                self.close(child, fd)

        child.pipes.add(fd)
        self.outputs.register(fd, selectors.EVENT_READ, read)

    def look_at_pipes(self, reading: bool) -> None:
        """Turns on or off that the selector listens to the tasks' pipes."""
        if reading and not self.reading:
            self.listen(self.outputs.fileno(), self.read_pipes)
        elif self.reading and not reading:
            self.selector.unregister(self.outputs.fileno())
        self.reading = reading

    def read_pipes(self) -> None:
        """Passes on what has come; where that is little, more may gather."""
        for key, _ in self.outputs.select(0):
            key.data()
        if max(self.passed, self.passed_before) < self.LITTLE:
            pause = min(self.GATHER * (len(self.children) - 1), self.LONGEST_GATHER)
            self.read_at = time.monotonic() + pause

    def close(self, child: Child, fd: int) -> None:
        self.outputs.unregister(fd)
        child.pipes.discard(fd)
        self.report(child)

    def reap(self, _signals: bytes) -> None:
        """Collects the tasks that have ended, and orphans."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if not pid:
                    return
                for child in self.children:
                    if child.process and child.process.pid == pid:
                        child.end(child.process, status, used)
                        self.clean_up(child, pid)

    def clean_up(self, child: Child, group: int) -> None:
        """Kills what a task that has ended left behind, then waits for its last output."""
        send_signal([-group], signal.SIGKILL)
        if not any(child.running for child in self.children):
            send_signal(descendants(os.getpid()), signal.SIGKILL)
        child.deadline = time.monotonic() + self.DRAIN
        self.read_at = 0.0
        self.report(child)

    def lose_patience(self, child: Child) -> None:
        """Kills a task that did not stop; closes pipes that nobody closes, save while they are not read."""
        child.signal(signal.SIGKILL)
        if self.full:
            child.deadline = time.monotonic() + self.DRAIN
        elif not child.running:
            for fd in list(child.pipes):
                self.close(child, fd)

    def report(self, child: Child) -> None:
        """Says how the task ended, once all its output has been read."""
        if child.process and child.status is not None and not child.pipes:
            child.process = child.deadline = None
            used = {"cpu": child.cpu, "memory": child.memory}
            self.say("exit", task=child.number, status=child.status, **used, why="")


def exit_code(status: int) -> int:
    """``exit_code(-11)`` gives 139, as shells do; an exit status stays what it is."""
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def confined(cores: list[int] | None, nodes: list[int]) -> Iterator[str]:
    """What is started meanwhile inherits these CPUs and NUMA nodes; this process gets its own back.

    Yields why memory cannot be bound, "" when it is. Raises OSError where the CPUs cannot be used.
    """
    before = os.sched_getaffinity(0)
    try:
        if cores:
            os.sched_setaffinity(0, cores)
        yield set_memory_policy(nodes) if nodes else ""
    finally:
        os.sched_setaffinity(0, before)
        if nodes:
            set_memory_policy([])


MEMORY_NODES = 1024  # the most NUMA nodes that a Linux can have
# Its number among the system calls of a machine.
SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261, "s390x": 270}


def set_memory_policy(nodes: list[int]) -> str:
    """Binds memory to NUMA nodes (none: anywhere): set_mempolicy(2), MPOL_BIND. Returns why not, or ""."""
    import ctypes

    mask = (ctypes.c_ulong * (MEMORY_NODES // 64))()
    for node in nodes:
        mask[node // 64] |= 1 << node % 64
    number = SET_MEMPOLICY.get(os.uname().machine, -1)
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.syscall(number, 2 if nodes else 0, mask if nodes else None, MEMORY_NODES if nodes else 0)
    return f"set_mempolicy: {os.strerror(ctypes.get_errno())}" if failed else ""


def signal_name(number: int) -> str:
    """``11`` -> "SIGSEGV"; a number without a name, as 35 on Linux, reads "signal 35"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def agent_main() -> None:
    """Life of this program on a node, started by BOOTSTRAP at the end of a qrsh."""
    if sys.version_info < (3, 9):  # noqa: UP036 - the launcher's own is newer, a node's may not be
        sys.exit("Python 3.9 or later is needed")
    guardian_gone = guard()
    arrived = sys.stdin.buffer.read1(CHUNK)  # type: ignore[union-attr]
    os._exit(Agent(guardian_gone).serve(arrived))


# ============================================================================ agent: check
# The task of `--check` is this part of the file as well, with check_main at its end.

REACH_TIME = 10.0  # seconds in which the other hosts must be reached

TENSORFLOW_PROBE = """
import sys
sys.path = [folder for folder in sys.path if folder]
import tensorflow
print(tensorflow.__version__, len(tensorflow.config.list_physical_devices("GPU")))
"""


def check_main() -> None:
    """Prints in JSON what a task finds on its host, then listens until it is killed.

    The argument, JSON too: its own address and reserved port, or null; and the same of all hosts by name.
    """
    own, peers = json.loads(sys.argv[1])
    listener = listen_on(own[1], backlog=len(peers)) if own else None
    found = {
        "python": "{}.{}.{}".format(*sys.version_info),
        "psutil": psutil_version(),
        **find_tensorflow(),
        "devices": len(glob.glob("/dev/nvidia[0-9]*")),
        "cpus": sorted(os.sched_getaffinity(0)),
        "online": os.cpu_count(),
        "environment": {k: v for k, v in os.environ.items() if k.startswith(("SGE_HGR_", "CUDA_"))},
        **find_gaps(peers),
    }
    print(json.dumps(found), flush=True)
    while listener:
        signal.pause()


def psutil_version() -> str:
    """The version of psutil, "" where there is none."""
    try:
        import psutil
    except ImportError:
        return ""
    return str(psutil.__version__)


def find_tensorflow() -> dict[str, Any]:
    """TensorFlow's version and how many GPUs it sees; or why it cannot be imported.

    In a process of its own, since the import may also end it: by SIGILL on an old CPU, for example.
    """
    command = [sys.executable, "-c", TENSORFLOW_PROBE]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        version, gpus = done.stdout.split()[-2:]
        return {"tensorflow": version, "gpus": int(gpus), "why": ""}
    killed = f"killed by {signal_name(-done.returncode)}" if done.returncode < 0 else ""
    return {"tensorflow": "", "gpus": 0, "why": killed or done.stderr.strip().rpartition("\n")[2]}


def listen_on(port: int, backlog: int) -> socket.socket:
    """Listens on a port (0: any free one) of all addresses; with SO_REUSEADDR, as TensorFlow does."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=backlog, dualstack_ipv6=dual)


def find_gaps(peers: dict[str, tuple[str, int] | None]) -> dict[str, dict[str, str]]:
    """Hosts whose names do not resolve here, and hosts that cannot be reached, each with the reason.

    ``peers`` are the address and the port by host name; None where nothing listens. Where the address is a
    name that does not resolve, that says it all.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(64) as pool:
        names = zip(peers, pool.map(why_unresolved, peers))
        unresolved = {host: why for host, why in names if why}
        places = {host: place for host, place in peers.items() if place and place[0] not in unresolved}
        deadline = time.monotonic() + REACH_TIME
        ports = zip(places, pool.map(lambda place: why_unreached(place, deadline), places.values()))
        unreached = {host: why for host, why in ports if why}
    return {"unresolved": unresolved, "unreached": unreached}


def why_unresolved(name: str) -> str:
    """Why a host name does not resolve; "" if it does."""
    try:
        socket.getaddrinfo(name, None)
        return ""
    except OSError as error:
        return str(error.strerror)


def why_unreached(place: tuple[str, int], deadline: float) -> str:
    """Why an address and port cannot be reached until then, in monotonic seconds; "" if they can."""
    while True:
        patience = max(1.0, deadline - time.monotonic())
        try:
            socket.create_connection((place[0], place[1]), patience).close()
            return ""
        except ConnectionRefusedError as error:  # perhaps the other task does not listen yet
            if time.monotonic() > deadline:
                return str(error.strerror)
        except OSError as error:
            return error.strerror or str(error)
        time.sleep(0.1)


# ============================================================================ launcher
# ruff: noqa: E402 - only the launcher pays for these imports
import argparse
import base64
import dataclasses
import functools
import gc
import queue
import select
import shlex
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

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
    further_slots: int = 0  # those of its queue instances after the first


@dataclass(frozen=True)
class Allocation:
    """The slots of one job. ``hosts[0]`` is the master host, where the job script runs."""

    job_id: str
    job_name: str
    hosts: tuple[Host, ...]

    @property
    def job_number(self) -> str:
        """What qstat and qdel know the job by: without the task of an array job."""
        return self.job_id.partition(".")[0]


@dataclass(frozen=True)
class ParallelEnvironment:
    """The attributes of `qconf -sp NAME` that matter here; the defaults are those of a good PE."""

    name: str = ""
    control_slaves: bool = True
    job_is_first_task: bool = False
    master_forks_slaves: bool = False
    daemon_forks_slaves: bool = False


# One line of the host file: host slots [queue [column 4]]; sge_pe(5), "$pe_hostfile".
HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
SLOTS = re.compile(r"[0-9]{1,6}")
HOST_LINE = 'a line should read "host slots queue binding"'

HOW_TO_SUBMIT = """\
this is not a job of a parallel environment (PE_HOSTFILE is not set); submit it:
    qsub -pe tensorflow 4 -binding linear:1 tf_submit.py SCRIPT
or run it on this machine alone:
    tf_submit.py --local 3 SCRIPT"""


def read_allocation(environ: Mapping[str, str]) -> Allocation:
    """Read what the scheduler granted to this job: the file that PE_HOSTFILE names, and the job's variables.

    JOB_ID 17 becomes "17", or "17.3" in task 3 of an array job (SGE_TASK_ID).
    Raises UserError outside a parallel job, or where file and variables make no sense.
    """
    path = environ.get("PE_HOSTFILE")
    if not path:
        raise UserError(HOW_TO_SUBMIT)
    try:
        with open(path, encoding="utf-8", errors="backslashreplace") as lines:
            hosts = parse_hostfile(lines.read(), path)
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}: this host file exists on the master host only, while the job runs"
        ) from error
    check_slots(environ.get("NSLOTS", ""), hosts, path)
    return Allocation(full_job_id(environ), environ.get("JOB_NAME", "tf_submit"), hosts)


def local_allocation(slots: int, job_name: str, host: str, job_id: str = "local") -> Allocation:
    """The allocation of a run without a scheduler: so many slots on this machine, named ``host``."""
    return Allocation(job_id, job_name, (Host(host, slots),))


def parse_hostfile(text: str, path: str) -> tuple[Host, ...]:
    """Merge the lines of a host file, one per queue instance, into hosts in first-seen order.

    >>> parse_hostfile("n1 1 all.q@n1 0,1\\nn2 2\\nn1 3 fat.q@n1 0,1\\n", "pe_hostfile")[0]
    Host(name='n1', slots=4, queues=('all.q@n1', 'fat.q@n1'), binding=('0,1',), further_slots=3)
    """
    hosts: dict[str, Host] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            found = parse_host_line(line, f"{path}:{number}")
            hosts[found.name] = merge_hosts(hosts.get(found.name), found)
    if not hosts:
        raise UserError(f"{path}: the host file is empty; for each queue instance, {HOST_LINE}")
    return tuple(hosts.values())


def parse_pe(text: str) -> ParallelEnvironment:
    """Read what `qconf -sp NAME` prints; attributes that this scheduler does not know keep their defaults.

    >>> parse_pe("pe_name  tight\\ncontrol_slaves  FALSE\\n").control_slaves
    False
    """
    switches = {field.name for field in dataclasses.fields(ParallelEnvironment)} - {"name"}
    found: dict[str, Any] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        key, value = (*line.split(), "", "")[:2]
        if key == "pe_name":
            found["name"] = value
        elif key in switches:
            if value.upper() not in ("TRUE", "FALSE"):
                raise UserError(f"qconf -sp, line {number}: {line.strip()!r}: {key} should be TRUE or FALSE")
            found[key] = value.upper() == "TRUE"
    return ParallelEnvironment(**found)


def parse_host_line(line: str, where: str) -> Host:
    """One line, e.g. "node1 2 all.q@node1 0,0:0,1"; ``where`` is "file:line" for the error."""
    name, slots, queue, binding = (*line.split()[:4], "", "", "")[:4]
    if not HOST_NAME.fullmatch(name):
        raise UserError(f"{where}: {line.strip()!r}: {name!r} is no host name; {HOST_LINE}")
    if not SLOTS.fullmatch(slots) or int(slots) == 0:
        raise UserError(
            f"{where}: {line.strip()!r}: the slots, {slots!r}, should be a number from 1 up; {HOST_LINE}"
        )
    return Host(name, int(slots), (queue,) if queue else (), (binding,) if binding else ())


def merge_hosts(known: Host | None, found: Host) -> Host:
    """Add another queue instance of a host; every distinct queue and binding is kept once."""
    if known is None:
        return found
    return Host(
        known.name,
        known.slots + found.slots,
        tuple(dict.fromkeys(known.queues + found.queues)),
        tuple(dict.fromkeys(known.binding + found.binding)),
        known.further_slots + found.slots,
    )


def check_slots(nslots: str, hosts: Sequence[Host], path: str) -> None:
    if not nslots:
        return
    if not SLOTS.fullmatch(nslots):
        raise UserError(f"NSLOTS={nslots!r} should be a number")
    granted = sum(host.slots for host in hosts)
    if granted != int(nslots):
        raise UserError(
            f"{path}: the host file grants {granted} slots, but NSLOTS is {nslots}: "
            "the administrator should look at this parallel environment; "
            f"with NSLOTS={granted} in its environment tf_submit trusts the file"
        )


def full_job_id(environ: Mapping[str, str]) -> str:
    job, task = environ.get("JOB_ID", "0"), environ.get("SGE_TASK_ID", "undefined")
    return f"{job}.{task}" if task.isdecimal() else job


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


def make_plan(allocation: Allocation, pe: ParallelEnvironment, options: Options) -> Plan:
    """Turn slots into tasks with roles, and tasks into the groups that one agent each will run.

    ps come first, from the master host on (``--spread-ps``: one per host in turn), then the chief, the
    workers and the evaluator. Raises UserError where the slots do not suffice or the PE forbids it.
    """
    seats, warnings = find_seats(allocation.hosts, options.slots_per_task)
    roles = deal_roles(len(seats), options)
    if options.spread_ps:
        seats = spread_out(seats, options.ps)
    tasks = tuple(
        Task(role, index, host, options.slots_per_task) for (role, index), host in zip(roles, seats)
    )
    return Plan(tasks, make_groups(tasks, allocation, pe, options), warnings)


def find_seats(hosts: Sequence[Host], slots_per_task: int) -> tuple[list[str], tuple[str, ...]]:
    """The host of every task that the slots have room for, and a warning about slots left over."""
    seats = [host.name for host in hosts for _ in range(host.slots // slots_per_task)]
    odd = [
        f"{host.slots % slots_per_task} of {host.slots} on {host.name}"
        for host in hosts
        if host.slots % slots_per_task
    ]
    if not odd:
        return seats, ()
    return seats, (f"slots left over by --slots-per-task {slots_per_task}: {shortened(odd)}",)


def shortened(names: Sequence[str], most: int = 8) -> str:
    """Join names for a message, e.g. "node1, node2 and 298 more"."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def deal_roles(tasks: int, options: Options) -> list[tuple[str, int]]:
    """Role and index of each task in the order of the cluster spec."""
    counts = {"ps": options.ps, "chief": int(options.chief), "worker": 1, "evaluator": int(options.evaluator)}
    needed = sum(counts.values())
    if tasks < needed:
        wanted = ", ".join(f"{count} {role}" for role, count in counts.items() if count)
        per_task = f" of {options.slots_per_task} slots each" if options.slots_per_task > 1 else ""
        raise UserError(
            f"the job has room for {counted(tasks, 'task')}{per_task}, but {wanted} need {needed}: "
            "ask for more slots (-pe NAME SLOTS) or fewer roles"
        )
    counts["worker"] += tasks - needed
    return [(role, index) for role, count in counts.items() for index in range(count)]


def spread_out(seats: Sequence[str], count: int) -> list[str]:
    """Move ``count`` seats to the front that are on different hosts as far as there are any."""
    nth: collections.Counter[str] = collections.Counter()
    turns = []
    for position, host in enumerate(seats):
        turns.append((nth[host], position))
        nth[host] += 1
    first = [position for _, position in sorted(turns)[:count]]
    taken = set(first)
    return [seats[position] for position in first] + [
        host for position, host in enumerate(seats) if position not in taken
    ]


def make_groups(
    tasks: Sequence[Task], allocation: Allocation, pe: ParallelEnvironment, options: Options
) -> tuple[Group, ...]:
    """One group per task; fewer where asked, or where Grid Engine takes fewer qrsh than a host has tasks."""
    by_host: dict[str, list[Task]] = {}
    for task in tasks:
        by_host.setdefault(task.host, []).append(task)
    others = [host for host in by_host if host != allocation.hosts[0].name]
    if others and not pe.control_slaves:
        raise UserError(no_control(pe.name, others))
    together = options.per_host or pe.daemon_forks_slaves
    groups = []
    for host in allocation.hosts:
        here, is_master = by_host.get(host.name, []), host is allocation.hosts[0]
        limit = qrsh_limit(host, is_master, pe, options)
        bundles = bundle(here, 1 if together else len(here) if is_master else limit)
        local = len(bundles) - limit
        groups += [
            Group(host.name, bundle, "local" if number < local else "qrsh")
            for number, bundle in enumerate(bundles)
        ]
    return tuple(groups)


def bundle(tasks: Sequence[Task], most: int) -> list[tuple[Task, ...]]:
    """At most so many groups of neighbours, whose sizes differ by one at most."""
    count = min(most, len(tasks))
    ends = [len(tasks) * number // max(1, count) for number in range(count + 1)]
    return [tuple(tasks[start:end]) for start, end in zip(ends, ends[1:])]


def qrsh_limit(host: Host, is_master: bool, pe: ParallelEnvironment, options: Options) -> int:
    """How many qrsh tasks to start on a host: what its execution daemon takes, sge_pe(5).

    With ``--per-host`` none on the master host: its agent is a child of the job script, which has the cores
    of all its slots there. On the other hosts Son of Grid Engine counts on the first queue instance alone.
    """
    if options.local is not None or not pe.control_slaves:
        return 0
    if is_master and (pe.master_forks_slaves or options.per_host):
        return 0
    return host.slots - (pe.job_is_first_task if is_master else host.further_slots)


def no_control(pe: str, hosts: Sequence[str]) -> str:
    return (
        f"the parallel environment {pe} has control_slaves FALSE, so Grid Engine starts no tasks on "
        f"{shortened(hosts)}: the administrator can set control_slaves TRUE (qconf -mp {pe}); "
        "jobs on one host run as it is"
    )


# ============================================================================ assign


@dataclass(frozen=True)
class Cpu:
    """One logical CPU (Linux number) with its socket, core and NUMA node, as ``topology`` finds them."""

    number: int
    socket: int
    core: int
    node: int


@functools.cache
def shared_cpu(number: int, socket: int, core: int, node: int) -> Cpu:
    """One object for all hosts that have this CPU: thousands of agents describe theirs."""
    return Cpu(number, socket, core, node)


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


def place(
    plan: Plan,
    hellos: Sequence[Hello],
    allocation: Allocation,
    options: Options,
    qstat: str = "",
    script: Hello | None = None,
) -> tuple[dict[str, Placement], tuple[str, ...]]:
    """Decide where each task runs: placements by task name, in the plan's order, and warnings.

    ``hellos`` are those of ``plan.groups``, in their order; ``qstat`` is what `qstat -j JOB_ID` printed;
    ``script`` is what the waiting job script found for itself on the master host.
    Raises UserError where tasks outnumber GPUs.
    """
    agents: dict[str, list[tuple[Group, Hello]]] = {}
    for group, hello in zip(plan.groups, hellos):
        agents.setdefault(group.host, []).append((group, hello))
    placements, core_warnings = assign_cores(agents, allocation.hosts[0], options.bind, script)
    if options.membind and not any(placement.nodes for placement in placements.values()):
        core_warnings += (NOT_PINNED,)
    gpus, gpu_warnings = assign_gpus(agents, allocation, options, qstat, script)
    for group, hello in zip(plan.groups, hellos):
        for task, port in zip(group.tasks, hello.ports):
            placements[task.name] = dataclasses.replace(
                placements[task.name],
                address=with_port(hello.address or group.host, port),
                gpus=gpus.get(task.name, ()),
            )
    return {task.name: placements[task.name] for task in plan.tasks}, core_warnings + gpu_warnings


# ---------------------------------------------------------------------------- assign: cores

Answers = Mapping[str, Sequence[tuple[Group, Hello]]]  # by host: its groups, and what their agents found
Core = Sequence[Cpu]  # those hardware threads of one physical core that may be used


@dataclass(frozen=True)
class HostCpus:
    """The CPUs of one host as its agents see them.

    ``masks`` maps each distinct set of CPUs to the tasks whose agents have it. ``granted`` holds the sets
    that were given to the job, rather than being all that the host has. ``script`` are the CPUs given to
    the job script, which only waits while the tasks run.
    """

    name: str
    topology: Mapping[int, Cpu]
    masks: Mapping[frozenset[int], Sequence[Task]]
    granted: frozenset[frozenset[int]]
    script: frozenset[int]


@dataclass(frozen=True)
class Pool:
    """Cores for some tasks to divide. ``own``: nothing else computes there, so threads may fill them."""

    host: str
    tasks: Sequence[Task]
    cores: Sequence[Core]
    own: bool
    warning: str

    @property
    def described(self) -> str:
        tasks = shortened([task.name for task in self.tasks])
        return f"{self.host} ({counted(len(self.cores), 'core')} for {tasks})"


CROWDED = "fewer cores than tasks, so tasks share some; ask for one per slot, or say --bind none: "
NOT_PINNED = "--membind binds no memory: no task is pinned; ask for cores with -binding, or say --bind cores"
UNBOUND = "Grid Engine bound no cores, so tasks divide what is left of the host, one thread per slot: "


def assign_cores(
    agents: Answers, master: Host, bind: str = "auto", script: Hello | None = None
) -> tuple[dict[str, Placement], tuple[str, ...]]:
    """Give each task cores of its own, from what the agents of each host found; placements by task name.

    Where nothing in the job asks for binding, and with bind "none", no task is pinned: its threads follow
    its slots, or the cores that it would have had. With bind "cores" tasks are pinned in any case.
    """
    hosts = [
        look_at_cpus(name, here, *((script, master.binding) if name == master.name else (None, ())))
        for name, here in agents.items()
    ]
    asked = any(host.granted or host.script for host in hosts)
    if not asked and bind != "cores":
        return {
            task.name: Placement(task, threads=task.slots)
            for here in agents.values()
            for group, _ in here
            for task in group.tasks
        }, ()
    pools = [pool for host in hosts for pool in make_pools(host)]
    placements = {
        task.name: pin(task, cores, pool.own)
        for pool in pools
        for task, cores in zip(pool.tasks, divide_cores(pool.tasks, pool.cores))
    }
    if bind == "none":
        return {name: Placement(found.task, threads=found.threads) for name, found in placements.items()}, ()
    return placements, pool_warnings(pools, (CROWDED, UNBOUND) if asked else (CROWDED,))


def pool_warnings(pools: Sequence[Pool], kinds: Iterable[str]) -> tuple[str, ...]:
    """One line for each kind of warning, however many hosts it is about."""
    lines = []
    for kind in kinds:
        where = [pool.described for pool in pools if pool.warning == kind]
        lines += [kind + shortened(where)] if where else []
    return tuple(lines)


def look_at_cpus(
    name: str, agents: Sequence[tuple[Group, Hello]], script: Hello | None, binding: Sequence[str]
) -> HostCpus:
    """Sort the tasks of a host by the CPUs that their agents may use.

    Only the master host has a job script, and only there column 4 of the host file is no guess.
    """
    topology = {cpu.number: cpu for cpu in agents[0][1].topology}
    column = cores_in_column(binding, topology)
    masks: dict[frozenset[int], list[Task]] = {}
    granted = set()
    for group, hello in agents:
        cpus, given = cpus_given(hello, frozenset(topology), column)
        masks.setdefault(cpus, []).extend(group.tasks)
        granted |= {cpus} if given else set()
    waiting, given = cpus_given(script, frozenset(topology), column) if script else (frozenset(), False)
    return HostCpus(name, topology, masks, frozenset(granted), waiting if given else frozenset())


def cpus_given(hello: Hello, online: frozenset[int], column: frozenset[int]) -> tuple[frozenset[int], bool]:
    """The CPUs that a process should use, and whether they were given to it rather than being all there are.

    The mask is the truth; the scheduler's variables and column 4 of the host file can only narrow it.
    """
    mask = frozenset(hello.mask)
    is_wide = mask >= online
    for named in (cpus_bound(hello.environment, mask), column if is_wide else frozenset()):
        if mask & named:
            return mask & named, True
    return mask, not is_wide


def cpus_bound(environ: Mapping[str, str], mask: Iterable[int]) -> frozenset[int]:
    """The CPUs in SGE_BINDING ("0 1", Linux numbers) or SGE_BINDING_CPUSET; empty where neither says any."""
    numbers = environ.get("SGE_BINDING", "").replace(",", " ").split()
    if numbers and all(CPU_NUMBER.fullmatch(number) for number in numbers):
        return frozenset(map(int, numbers))
    bitmap = parse_cpuset(environ.get("SGE_BINDING_CPUSET", ""))
    return frozenset(number for number in mask if bitmap >> number & 1)


CPU_NUMBER = re.compile(r"[0-9]{1,5}")


def parse_cpuset(text: str) -> int:
    """Read a bitmap of CPUs as hwloc writes it, in words of 32 bits, the highest first; 0 for anything else.

    >>> parse_cpuset("0x00000003,,0x1") == 0b11 << 64 | 1
    True
    """
    bitmap = 0
    for word in text.split(","):
        if not re.fullmatch(r"((0x)?[0-9a-fA-F]+)?", word):
            return 0
        bitmap = bitmap << 32 | int(word or "0", 16)
    return bitmap


def parse_binding(text: str) -> tuple[tuple[int, int], ...]:
    """Read column 4 of the host file: pairs of logical socket and core; none where it is no binding.

    >>> parse_binding("0,0:0,1") == parse_binding("0:0,0:1") == ((0, 0), (0, 1))
    True
    >>> parse_binding("0-3,8"), parse_binding("UNDEFINED"), parse_binding("<NULL>")
    ((), (), ())
    """
    for between, inside in ((":", ","), (",", ":")):  # Son of Grid Engine, Open Cluster Scheduler
        pairs = [pair.split(inside) for pair in text.split(between)]
        if all(len(pair) == 2 and all(CPU_NUMBER.fullmatch(number) for number in pair) for pair in pairs):
            return tuple((int(socket), int(core)) for socket, core in pairs)
    return ()


def cores_in_column(binding: Sequence[str], topology: Mapping[int, Cpu]) -> frozenset[int]:
    """The CPUs of the cores that column 4 of the host file names; none if one of them is not there.

    Sockets, and the cores in each, are counted in hwloc's order: by the lowest CPU number in them.
    """
    sockets: dict[int, dict[int, dict[int, list[int]]]] = {}
    for number, cpu in sorted(topology.items()):
        sockets.setdefault(cpu.socket, {}).setdefault(cpu.node, {}).setdefault(cpu.core, []).append(number)
    tree = [[core for node in nodes.values() for core in node.values()] for nodes in sockets.values()]
    pairs = [pair for column in binding for pair in parse_binding(column)]
    if not all(socket < len(tree) and core < len(tree[socket]) for socket, core in pairs):
        return frozenset()
    return frozenset(number for socket, core in pairs for number in tree[socket][core])


def make_pools(host: HostCpus) -> Iterable[Pool]:
    """Turn overlapping masks into pools that do not overlap, where that is possible.

    The narrowest mask comes first, and a wider one has what is left. Beside narrower ones it means that
    the scheduler had no core left for a task: then the cores of the waiting job script are the safest,
    for all others may have been given to other jobs.
    """
    taken: frozenset[int] = frozenset()
    for cpus, tasks in sorted(host.masks.items(), key=lambda item: (len(item[0]), min(item[0], default=0))):
        free = cpus - taken
        idle = physical_cores(host.script & free if host.script <= cpus else (), host.topology)
        use_script = len(idle) >= len(tasks)
        cores = idle if use_script else physical_cores(free or cpus, host.topology)
        is_given = use_script or cpus in host.granted
        is_crowded = not free or len(cores) < len(tasks)
        yield Pool(
            host.name,
            tasks,
            cores,
            is_given and not is_crowded,
            CROWDED if is_crowded else "" if is_given else UNBOUND,
        )
        taken |= {cpu.number for core in cores for cpu in core}


def physical_cores(cpus: Iterable[int], topology: Mapping[int, Cpu]) -> list[Core]:
    """Bring the hardware threads of each core together, and neighbouring cores next to each other."""
    cores: dict[tuple[int, int, int], list[Cpu]] = {}
    for number in sorted(cpus):
        cpu = topology.get(number) or Cpu(number, 0, number, 0)
        cores.setdefault((cpu.socket, cpu.node, cpu.core), []).append(cpu)
    return [core for _, core in sorted(cores.items())]


def divide_cores(tasks: Sequence[Task], cores: Sequence[Core]) -> list[Sequence[Core]]:
    """The cores of each task: whole ones where they suffice, else hardware threads, else in turns.

    Where tasks must share, a ps, which computes little, floats over all cores and leaves workers apart.
    """
    if len(cores) < len(tasks):
        cores = [(cpu,) for core in cores for cpu in core]
    floating = {task for task in tasks if task.role == "ps"} if len(cores) < len(tasks) else set()
    turns = min(len(tasks) - len(floating), len(cores))
    shares = itertools.cycle(split_cores(cores, turns) if turns else ())
    return [cores if task in floating else next(shares, cores) for task in tasks]


def split_cores(cores: Sequence[Core], count: int) -> list[Sequence[Core]]:
    """Split cores into ``count`` <= len(cores) runs of neighbours, as even as can be.

    No run crosses NUMA nodes, or else sockets, unless some run would get fewer than its fair share.
    """
    for domain in (lambda core: (core[0].socket, core[0].node), lambda core: core[0].socket):
        shares = split_domains([list(cores) for _, cores in itertools.groupby(cores, domain)], count)
        if min(map(len, shares)) >= len(cores) // count:
            return shares
    return split_evenly(cores, count)


def split_domains(domains: Sequence[Sequence[Core]], count: int) -> list[Sequence[Core]]:
    """Give each of ``count`` runs to the domain that then has the most cores for each of its runs.

    Each domain divides all its cores; one without a run, a small one, leaves them idle.
    """
    runs = [0] * len(domains)
    for _ in range(count):
        roomiest = max(range(len(domains)), key=lambda at: len(domains[at]) / (runs[at] + 1))
        runs[roomiest] += 1
    return [share for domain, n in zip(domains, runs) if n for share in split_evenly(domain, n)]


def split_evenly(items: Sequence[Any], count: int) -> list[Any]:
    return [items[n * len(items) // count : (n + 1) * len(items) // count] for n in range(count)]


def pin(task: Task, cores: Sequence[Core], own: bool) -> Placement:
    """A task on these cores, with a thread for each if they are its own, else for each of its slots."""
    cpus = [cpu for core in cores for cpu in core]
    physical = len({(cpu.socket, cpu.core) for cpu in cpus})
    return Placement(
        task,
        cores=tuple(sorted(cpu.number for cpu in cpus)) if cpus else None,
        sockets=tuple(sorted({cpu.socket for cpu in cpus})),
        nodes=tuple(sorted({cpu.node for cpu in cpus})),
        threads=physical if own else min(task.slots, physical) or task.slots,
    )


# ---------------------------------------------------------------------------- assign: GPUs


def assign_gpus(
    agents: Answers, allocation: Allocation, options: Options, qstat: str = "", script: Hello | None = None
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The CUDA devices of each task that has any, by task name, and warnings; a ps never has any.

    Tasks that were given the same ids split them. Raises UserError where tasks outnumber GPUs.
    """
    resource, master = options.gpu_resource, allocation.hosts[0].name
    grants = gpu_grants(qstat, resource, allocation.job_id) if len(allocation.hosts) > 1 else {}
    gpus: dict[str, tuple[str, ...]] = {}
    for host, here in agents.items():
        grant = grant_of_host(host, grants, agents) if grants else None
        prolog = script.environment if script and host == master else {}
        leased = tuple(gpu for _, hello in here for lease in hello.leases for gpu in lease)
        users: dict[tuple[str, ...], list[Task]] = {}
        for group, hello in here:
            ids = gpus_given(hello.environment, grant, prolog, resource) or leased
            users.setdefault(ids, []).extend(task for task in group.tasks if task.role != "ps")
        for ids, tasks in users.items():
            gpus.update(split_gpus(host, ids, tasks, options))
    needs_grant = len(allocation.hosts) > 1 and not grants
    return gpus, tuple(gpu_warnings(agents, gpus, resource if needs_grant else ""))


def gpu_warnings(agents: Answers, gpus: Mapping[str, Sequence[str]], doubtful: str) -> Iterator[str]:
    """``doubtful`` is a resource whose SGE_HGR_<resource> may be wrong."""
    answers = [answer for here in agents.values() for answer in here]
    if doubtful and any(ids_granted(hello.environment, doubtful) for _, hello in answers):
        yield GRANT_UNKNOWN.format(doubtful)
    tasks = [task for group, _ in answers for task in group.tasks if task.role != "ps"]
    without = [f"{task.name} on {task.host}" for task in tasks if task.name not in gpus]
    if gpus and without:
        yield NO_GPU + shortened(without)


GRANT_UNKNOWN = (
    "qstat -j does not tell which {0} each host has, so SGE_HGR_{0} is believed, "
    "which Open Cluster Scheduler 9 fills in wrongly in jobs over several hosts"
)
NO_GPU = "not all tasks have a GPU, since neither scheduler nor site named any on their hosts: "


def gpu_grants(qstat: str, resource: str, job_id: str) -> dict[str, tuple[str, ...]]:
    """The ids of a resource that each host has, from what `qstat -j JOB_ID` prints.

    >>> gpu_grants("resource_map   1:   gpu=node1=(0 1),gpu=node2=(1)", "gpu", "17")
    {'node1': ('0', '1'), 'node2': ('1',)}
    """
    task = job_id.partition(".")[2] or "1"
    lines = re.findall(rf"^(?:resource[ _]map)?[ \t]+{task}:[ \t]*(.*)$", qstat, re.MULTILINE)
    grants: dict[str, tuple[str, ...]] = {}
    for name, host, ids in re.findall(r"([^\s=,()]+)=([^\s=,()]+)=\(([^()]*)\)", ",".join(lines)):
        if name == resource:
            grants[host] = grants.get(host, ()) + device_ids(ids, f"{resource} on {host} in qstat -j")
    return grants


def device_ids(text: str, where: str) -> tuple[str, ...]:
    """Read granted ids, split by spaces or commas, as CUDA knows the devices; amounts are no ids.

    >>> device_ids("0 gpu1,MIG-6e5a1c08", "SGE_HGR_gpu"), device_ids("2.000000", "SGE_HGR_gpu")
    (('0', '1', 'MIG-6e5a1c08'), ())
    """
    return tuple(device_id(name, where) for name in granted_ids(text))


def device_id(name: str, where: str) -> str:
    """A UUID as it is, else the number at the end of the name."""
    if re.match(r"(GPU|MIG)-[0-9a-f]{8}", name):
        return name
    number = re.search(r"[0-9]{1,4}$", name)
    if not number:
        raise UserError(
            f"{where}: {name!r} is no GPU: an id should be a number, a name that ends in one, or a UUID"
        )
    return str(int(number[0]))


def visible_devices(text: str) -> tuple[str, ...]:
    """Read CUDA_VISIBLE_DEVICES; as in CUDA, what follows an invalid entry such as -1 does not count."""
    entries = [entry.strip() for entry in text.split(",")]
    return tuple(itertools.takewhile(re.compile(r"[0-9]+|(GPU|MIG)-.+").fullmatch, entries))


def grant_of_host(host: str, grants: Mapping[str, tuple[str, ...]], hosts: Iterable[str]) -> tuple[str, ...]:
    """The grant of a host. Where one name is short and the other has a domain they may still be the same,
    but only if no other host of the job has that short name."""
    if host in grants:
        return grants[host]
    short = host.partition(".")[0]
    alike = [name for name in grants if name.partition(".")[0] == short and short in (name, host)]
    rivals = [name for name in hosts if name.partition(".")[0] == short]
    return grants[alike[0]] if len(alike) == len(rivals) == 1 else ()


def gpus_given(
    own: Mapping[str, str], grant: tuple[str, ...] | None, prolog: Mapping[str, str], resource: str
) -> tuple[str, ...]:
    """The GPUs given to an agent, in the order of trust: grant, its own SGE_HGR_<resource>, and
    CUDA_VISIBLE_DEVICES, which a site's prolog may have set for the job script alone."""
    if grant is not None:
        return grant
    visible = own.get("CUDA_VISIBLE_DEVICES", prolog.get("CUDA_VISIBLE_DEVICES", ""))
    return ids_granted(own, resource) or visible_devices(visible)


def ids_granted(environ: Mapping[str, str], resource: str) -> tuple[str, ...]:
    """The ids in SGE_HGR_<resource>, whose name has the exact case of the complex."""
    return device_ids(environ.get(f"SGE_HGR_{resource}", ""), f"SGE_HGR_{resource}")


def split_gpus(
    host: str, ids: Sequence[str], tasks: Sequence[Task], options: Options
) -> dict[str, tuple[str, ...]]:
    """Split the ids that some tasks of a host have in common: ``--gpus-per-task`` each, or evenly."""
    if not tasks or not (ids or options.gpus_per_task):
        return {}
    wanted = max(options.gpus_per_task, 1) * len(tasks)
    if len(ids) < wanted and not (ids and options.share_gpus):
        raise UserError(too_few_gpus(host, ids, tasks, wanted))
    count = wanted if options.gpus_per_task else max(wanted, len(ids))
    shares = split_evenly(list(itertools.islice(itertools.cycle(ids), count)), len(tasks))
    return {task.name: tuple(dict.fromkeys(share)) for task, share in zip(tasks, shares)}


def too_few_gpus(host: str, ids: Sequence[str], tasks: Sequence[Task], wanted: int) -> str:
    who, gpus = shortened([task.name for task in tasks]), shortened(ids) or "none free"
    share = ", or let tasks share GPUs with --share-gpus" if ids else ""
    return (
        f"{host}: {counted(len(tasks), 'task')} ({who}) should have {counted(wanted, 'GPU')}, but it has "
        f"{counted(len(ids), 'GPU')} for them ({gpus}): "
        f"request more, or fewer slots on a host{share}"
    )


# ---------------------------------------------------------------------------- assign: what tasks are told


def cluster_spec(placements: Iterable[Placement]) -> ClusterSpec:
    """Collect the addresses of placements, which must come in the plan's order.

    Raises UserError when there are so many that no process could be given them.
    """
    addresses: dict[str, list[str]] = {}
    for placement in placements:
        addresses.setdefault(placement.task.role, []).append(str(placement.address))
    cluster = ClusterSpec(addresses, *addresses.pop("evaluator", []))
    if len(cluster.text) > LONGEST_VARIABLE:
        tasks = sum(map(len, addresses.values()))
        raise UserError(
            f"the cluster spec of {tasks} tasks takes {len(cluster.text)} bytes in TF_CONFIG, but Linux "
            f"passes on {LONGEST_VARIABLE}: run fewer tasks (--slots-per-task)"
        )
    return cluster


# Linux takes strings of up to 32 pages in an environment (MAX_ARG_STRLEN, execve(2)); some room for the rest.
LONGEST_VARIABLE = 32 * 4096 - 256


def thread_environment(placement: Placement, environ: Mapping[str, str]) -> dict[str, str]:
    """The sizes of TensorFlow's and OpenMP's thread pools, save those that the user's ``environ`` sets.

    At least two threads run operations: with one, a ParameterServerStrategy waits for itself for ever.
    """
    sizes = {
        "TF_NUM_INTRAOP_THREADS": placement.threads,
        "TF_NUM_INTEROP_THREADS": max(placement.threads, 2),
        "OMP_NUM_THREADS": placement.threads,
    }
    return {name: str(size) for name, size in sizes.items() if name not in environ}


def gpu_environment(placement: Placement, job_has_gpus: bool) -> dict[str, str]:
    """What limits CUDA to a task's GPUs, numbered as nvidia-smi does. A ps never sees any; in a job without
    GPUs the variables of the others stay as they are."""
    if not job_has_gpus and placement.task.role != "ps":
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(placement.gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def proxy_environment(environ: Mapping[str, str], addresses: Iterable[str]) -> dict[str, str]:
    """Exempt the cluster's hosts from proxies, which gRPC would try for them too; {} without a proxy.

    ``addresses`` are "host:port"; the user's own exemptions stay.
    """
    if not any(name.lower() in ("http_proxy", "https_proxy", "grpc_proxy") for name in environ):
        return {}
    hosts = dict.fromkeys(address.rpartition(":")[0].strip("[]") for address in addresses)
    either = environ.get("no_proxy") or environ.get("NO_PROXY", "")
    lists = {name: environ.get(name, either) for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy")}
    return {name: ",".join(filter(None, (users, *hosts))) for name, users in lists.items()}


# Variables that are true on one host, or for one process, only: those that Grid Engine sets for a job or task
# (qsub(1), "ENVIRONMENTAL VARIABLES"), and what sites and login sessions add.
HOST_BOUND = re.compile(
    r"""
      SGE_(BINDING | HGR_ | SGR_).* | SGE_PE_TASK_ID | SGE_JOB_SPOOL_DIR | SGE_STD(IN|OUT|ERR)_PATH
    | SGE_ARCH | SGE_BINARY_PATH | ARC | QRSH_.* | PE_HOSTFILE | QUEUE | NSLOTS | NHOSTS | NQUEUES
    | (CUDA | NVIDIA | ROCR | HIP)_VISIBLE_DEVICES | GPU_DEVICE_ORDINAL
    | HOST | HOSTNAME | TMPDIR | TMP | TEMP | PWD | OLDPWD | SHLVL | _
    | SSH_.* | XDG_RUNTIME_DIR | XDG_SESSION_ID | DBUS_SESSION_BUS_ADDRESS
    """,
    re.VERBOSE,
)


def is_host_bound(name: str) -> bool:
    """Whether an environment variable of the job script must not reach a task, which has its own agent's."""
    return bool(HOST_BOUND.fullmatch(name))


def tasks_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the tasks get of the job script's environment."""
    return {name: value for name, value in environ.items() if not is_host_bound(name)}


def planned(plan: Plan, options: Options) -> list[Placement]:
    """Placements as far as they are known before the start: with ``-p``, the ports upward from there."""
    next_port: dict[str, int] = {}
    placements = []
    for task in plan.tasks:
        address = None
        if options.port is not None and options.interface is None:
            port = next_port.get(task.host, options.port)
            address, next_port[task.host] = with_port(task.host, port), port + 1
        placements.append(Placement(task, address))
    return placements


def plan_json(job_id: str, plan: Plan, options: Options) -> dict[str, Any]:
    """What is known of a job before it starts, in the form of cluster.json; the rest is null."""
    return job_json(job_id, [{**task_json(known), "gpus": None} for known in planned(plan, options)])


def cluster_json(job_id: str, placements: Iterable[Placement]) -> dict[str, Any]:
    """The contents of cluster.json."""
    return job_json(job_id, [task_json(placement) for placement in placements])


def task_json(placement: Placement) -> dict[str, Any]:
    task = placement.task
    return {
        "role": task.role,
        "index": task.index,
        "host": task.host,
        "address": placement.address,
        "slots": task.slots,
        "cores": None if placement.cores is None else list(placement.cores),
        "gpus": list(placement.gpus),
    }


def job_json(job_id: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    cluster: dict[str, list[str | None]] = {}
    for row in rows:
        if row["role"] != "evaluator":
            cluster.setdefault(row["role"], []).append(row["address"])
    return {"job_id": job_id, "tasks": list(rows), "cluster": cluster}


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
    return exit_code(status)


def duration(seconds: float) -> str:
    """``7.31`` -> "7.3 s", ``72`` -> "1 min 12 s", ``11100`` -> "3 h 05 min"."""
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


def wall_seconds(outcome: Outcome) -> float | None:
    """From the start of the task to its end, over all its restarts; None when it has not ended."""
    if outcome.started is None or outcome.ended is None:
        return None
    return outcome.ended - outcome.started


def cpu_use(outcome: Outcome, cores: int) -> float | None:
    """CPU time per wall time of ``cores`` cores: 1.0 when all were busy all the time."""
    wall = wall_seconds(outcome)
    return outcome.cpu_seconds / (wall * cores) if wall else None


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
    """The cells of one task in the summary, in the order of SUMMARY_HEADER; "-" where nothing is known."""
    wall = wall_seconds(outcome)
    use = cpu_use(outcome, cores)
    return [
        outcome.task.name,
        outcome.task.host,
        exit_text(outcome),
        "-" if wall is None else duration(wall),
        "-" if outcome.started is None else duration(outcome.cpu_seconds),
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
    """What stands in summary.json: the fields of Outcome and Failure, null where nothing is known, with
    ``exit`` as in the summary table and ``cpu_use`` 1.0 for a task that kept all its cores busy."""
    cores = task_cores(placements)
    return {
        "job_id": job_id,
        "status": status,
        "failure": {**asdict(failure), "task": failure.task and failure.task.name} if failure else None,
        "tasks": [outcome_json(outcome, cores.get(outcome.task, outcome.task.slots)) for outcome in outcomes],
    }


def outcome_json(outcome: Outcome, cores: int) -> dict[str, Any]:
    fields = asdict(outcome)
    return {
        **fields.pop("task"),
        "exit": exit_text(outcome),
        **fields,
        "cpu_use": cpu_use(outcome, cores),
    }


# ---------------------------------------------------------------- what the job prints and keeps

LONGEST_LINE = 4 * 1024 * 1024  # bytes; of a longer line pieces are passed on
TAIL_LINES, TAIL_WIDTH = 10, 400  # a task's last lines in the failure report, and characters of each
TASK_COLORS = (36, 32, 35, 34, 94, 95, 92, 96)  # ANSI; red and yellow are for errors and warnings
RED, YELLOW, BOLD = 31, 33, 1
CLEAR_LINE = b"\r\033[K"


def encode(line: str) -> bytes:
    """UTF-8, whatever is in the line: an undecodable byte of a file name reads like ``\\udcff``."""
    return line.encode(errors="backslashreplace")


def prefix_lines(prefix: bytes, lines: bytes, begun: bytes | bytearray = b"") -> list[bytes | bytearray]:
    """Parts to write: each line behind the prefix and with an end. ``begun`` is the start of the first.

    >>> b"".join(prefix_lines(b"x | ", b"b\\nc", begun=b"a"))
    b'x | ab\\nx | c\\n'
    """
    return [prefix, begun, lines.removesuffix(b"\n").replace(b"\n", b"\n" + prefix), b"\n"]


def last_lines(output: bytes) -> tuple[str, ...]:
    """The last TAIL_LINES lines of some output, of each at most TAIL_WIDTH characters; where a line was
    redrawn with carriage returns, as progress bars do, what was drawn last."""
    if not output:
        return ()
    lines = output.removesuffix(b"\n").split(b"\n")[-TAIL_LINES:]
    drawn = (line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines)
    return tuple(line.decode(errors="backslashreplace")[:TAIL_WIDTH] for line in drawn)


def paint(text: str, color: int) -> str:
    return f"\033[{color}m{text}\033[0m"


def use_color(choice: str, terminal: bool, environment: Mapping[str, str]) -> bool:
    """``--color`` always and never decide; auto: on a terminal with colours and without NO_COLOR
    (https://no-color.org)."""
    if choice != "auto":
        return choice == "always"
    return terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def terminal_width(fd: int) -> int:
    """In columns; 80 where the terminal does not say, or is gone."""
    try:
        return os.get_terminal_size(fd).columns or 80
    except OSError:
        return 80


def write_all(fd: int, parts: Sequence[bytes | bytearray]) -> None:
    """Write all parts one after the other, however slow the other end is. OSError: it cannot be done."""
    rest = [memoryview(part) for part in parts]
    while rest:
        try:
            written = os.writev(fd, rest)
        except BlockingIOError:  # whoever started the job may have made the pipe non-blocking
            select.select([], [fd], [])
        else:
            rest = skip(rest, written)


def skip(parts: list[memoryview], size: int) -> list[memoryview]:
    """The parts without their first ``size`` bytes."""
    for position, part in enumerate(parts):
        if size < len(part):
            return [part[size:], *parts[position + 1 :]]
        size -= len(part)
    return []


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

    def write(self, stream: int, lines: bytes, begun: bytes | bytearray = b"") -> None:
        """Add lines, ``begun`` is the start of the first. The first write that fails raises UserError
        and is the last: a log may lack its end, not its middle."""
        if self.fd is None:
            return
        try:
            write_all(self.fd, [b"" if self.unended in (None, stream) else b"\n", begun, lines])
        except OSError as error:
            self.close()
            raise UserError(f"cannot write {self.path}: {error.strerror}") from None
        self.unended = None if lines.endswith(b"\n") else stream

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
    When stdout or stderr cannot be written any more (its reader is gone, its disk full), ``broken`` says
    so and what follows for it is left out: nothing here raises, the job can end in good order.
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
        self.broken = ""  # why stdout or stderr cannot be written any more
        self.log: LogFile | None = None
        self.unlogged = bytearray()  # the launcher's lines from before there was a log
        self.lock = threading.RLock()

    def say(self, line: str) -> None:
        self._tell(1, line, BOLD, least=0)

    def detail(self, line: str) -> None:
        self._tell(1, line, BOLD, least=1)

    def warn(self, line: str) -> None:
        self._tell(2, line, YELLOW, label="warning: ")

    def error(self, line: str) -> None:
        self._tell(2, line, RED, label="error: ")

    def report(self, lines: Iterable[str]) -> None:
        """The report of a failure: on stderr, with -q too."""
        for line in lines:
            self._tell(2, line, RED)

    def status(self, text: str) -> None:
        """Show the text as the live line at the bottom of a terminal; "" takes it away."""
        with self.lock:
            if self.live:
                self.status_text = encode(text[: terminal_width(self.fds[1]) - 1])
                self.show(1, [])

    def log_to(self, path: str) -> None:
        """Keep the launcher's lines in this file, those from before included. UserError."""
        with self.lock:
            self.log = LogFile(path)
            self.keep(self.log, 1, bytes(self.unlogged))
            self.unlogged.clear()

    def task_prefix(self, task: Task, stream: int) -> bytes:
        """``b"worker:0@node2 | "``, in a colour of the task's own where the stream has colours."""
        head = f"{task.name}@{task.host} | "
        color = TASK_COLORS[(task.index + len(task.role)) % len(TASK_COLORS)]
        return encode(paint(head, color) if self.colored[stream] else head)

    def show(self, stream: int, parts: Sequence[bytes | bytearray]) -> None:
        """Print whole lines of a task, their parts one after the other."""
        with self.lock:
            if self.status_drawn:
                self._put(1, [CLEAR_LINE])
            self._put(stream, parts)
            if self.status_text:
                self._put(1, [self.status_text])
            self.status_drawn = bool(self.status_text)

    def keep(self, log: LogFile, stream: int, lines: bytes, begun: bytes | bytearray = b"") -> None:
        """Write lines to a log. When it cannot be written any more, a warning says so, once."""
        try:
            log.write(stream, lines, begun)
        except UserError as error:
            self.warn(f"{error}; the log ends here, the job goes on")

    def close(self) -> None:
        with self.lock:
            self.status("")
            if self.log:
                self.log.close()

    def _tell(self, stream: int, line: str, color: int, label: str = "", least: int = -1) -> None:
        head = f"tf_submit: {label}" if label else "tf_submit | "
        prefix = paint(head, color) if self.colored[stream] else head
        stamp = f"{time.strftime(TIME_FORMAT)} {label}"
        with self.lock:
            self._record(b"".join(prefix_lines(encode(stamp), encode(line))))
            if self.verbosity >= least:
                self.show(stream, prefix_lines(encode(prefix), encode(line)))

    def _record(self, lines: bytes) -> None:
        if self.log:
            self.keep(self.log, 1, lines)
        else:
            self.unlogged += lines

    def _put(self, stream: int, parts: Sequence[bytes | bytearray]) -> None:
        try:
            if stream in self.fds:
                write_all(self.fds[stream], parts)
        except OSError as error:
            del self.fds[stream]
            self.live, self.status_text = False, b""
            name = {1: "standard output", 2: "standard error"}[stream]
            self.broken = self.broken or f"cannot write the job's {name}: {error.strerror}"


class TaskLog:
    """The output of one task: whole lines go prefixed to the job's stdout or stderr, at once, and
    unchanged to the task's log file. One thread writes; memory is bounded by LONGEST_LINE per stream.
    UserError: the log cannot be opened.
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
            if carry:
                self._pass_on(stream)
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
        end = data.rfind(b"\n") + 1
        if end:
            self._pass_on(stream, data[:end])
        self.carries[stream] += data[end:]
        if len(self.carries[stream]) > LONGEST_LINE:
            self._pass_on(stream)

    def _pass_on(self, stream: int, lines: bytes = b"") -> None:
        begun, self.carries[stream] = self.carries[stream], bytearray()
        size = TAIL_LINES * TAIL_WIDTH
        last = b"".join(prefix_lines(b"", lines[-size:], begun[-size:]))
        self.recent = (self.recent + last)[-size:]
        self.console.keep(self.file, stream, lines, begun)
        self.console.show(stream, prefix_lines(self.prefixes[stream], lines, begun))


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


# ============================================================================ tensorboard

TENSORBOARD_PORT = 6006  # the port that TensorBoard is known by

# Runs until its stdin ends: so TensorBoard goes with the launcher, however that comes to its end. The job's
# working directory is no place for modules here; a user may have a queue.py there.
TENSORBOARD_MAIN = """
import sys
sys.path = [folder for folder in sys.path if folder]
import os, runpy, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()
runpy.run_module("tensorboard.main", run_name="__main__", alter_sys=True)
"""


def tensorboard_command(python: str, logdir: str, address: str, port: int) -> list[str]:
    options = ["--logdir", logdir, "--host", address, "--port", str(port)]
    return [python, "-c", TENSORBOARD_MAIN, *options]


def is_loopback(address: str) -> bool:
    """Whether only programs on the same host reach this address."""
    return address in ("localhost", "::1") or address.startswith("127.")


def tensorboard_lines(address: str, port: int, host: str, gateway: str) -> list[str]:
    """Where TensorBoard is to be seen, and how from outside the cluster.

    ``address`` is what it listens on, ``host`` where it runs, ``gateway`` the host that a user logs in to.
    """
    reached = with_port(host if address in ("0.0.0.0", "::") else address, port)
    target = gateway
    if is_loopback(address):
        target = host if host == gateway else f"-J {gateway} {host}"
    return [
        f"TensorBoard: http://{reached}/",
        f"from elsewhere: ssh -L {TENSORBOARD_PORT}:{reached} {target}, "
        f"then http://localhost:{TENSORBOARD_PORT}/",
    ]


class TensorBoard:
    """TensorBoard as a child of the launcher, which runs on the master host. When it ends before it is
    stopped, a warning gives the last line of its log. OSError, RefusalError: it cannot be started."""

    LEAVE = 5.0  # seconds to end once its stdin is closed

    def __init__(self, python: str, logdir: str, address: str, log_path: str, console: Console) -> None:
        self.log_path, self.console = log_path, console
        self.stopping = False
        self.reserved = reserve_ports(TENSORBOARD_PORT, 1)[0]
        share_port(self.reserved)
        self.port: int = self.reserved.getsockname()[1]
        command = tensorboard_command(python, logdir, address, self.port)
        with open(log_path, "ab") as log, spared():
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a signal to the job script is none for TensorBoard
            )
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def watch(self) -> None:
        """The thread: waits for the end."""
        status = self.process.wait()
        if not self.stopping:
            with open(self.log_path, "rb") as log:
                said = last_lines(log.read())[-1:] or ("",)
            self.console.warn(
                f"TensorBoard {describe_exit(status)}, the job goes on: {said[0]} ({self.log_path})"
            )

    def stop(self) -> None:
        assert self.process.stdin
        self.stopping = True
        self.process.stdin.close()
        self.watcher.join(self.LEAVE)
        self.process.kill()
        self.watcher.join()
        self.reserved.close()


def start_tensorboard(
    options: Options, host: str, folder: JobFolder, environ: Mapping[str, str], console: Console
) -> TensorBoard | None:
    """Starts TensorBoard and says where it is; or warns why it cannot be started."""
    here = socket.gethostname()
    try:
        address = options.tensorboard_bind or own_address(host, options.interface)
        logdir = options.tensorboard_logdir or folder.path
        board = TensorBoard(options.python, logdir, address, folder.log_path("tensorboard"), console)
    except (OSError, RefusalError) as error:
        console.warn(f"TensorBoard cannot be started, the job goes on: {error}")
        return None
    for line in tensorboard_lines(address, board.port, here, environ.get("SGE_O_HOST", here)):
        console.say(line)
    return board


@contextlib.contextmanager
def tensorboard(
    options: Options, host: str, folder: JobFolder, environ: Mapping[str, str], console: Console
) -> Iterator[None]:
    """With ``--tensorboard`` it runs meanwhile. ``host`` is this one as the others know it."""
    board = start_tensorboard(options, host, folder, environ, console) if options.tensorboard else None
    try:
        yield
    finally:
        if board:
            board.stop()


# ============================================================================ transports

# Says that it is there, then reads the agent's program; what that imports it imports until it comes. Holds
# nothing that a shell expands, and looks for no modules in the job's working directory: a user may have a
# queue.py there.
BOOTSTRAP = (
    "import sys;sys.path=list(filter(None,sys.path));"
    f"print(' '*{AT_ONCE}+chr(0)+'{READY}',flush=True);"
    "import ctypes,json,socket,subprocess;"
    "i=sys.stdin.buffer;exec(i.read(int(i.readline())))"
)


def program_of_nodes(main: str) -> bytes:
    """This file's part above "launcher", which then calls ``main``."""
    with open(__file__, "rb") as file:
        return file.read().partition(b"# " + b"=" * 76 + b" launcher\n")[0] + b"\n%s()\n" % main.encode()


def agent_program() -> bytes:
    """What an agent is sent first, for BOOTSTRAP: the length of its program and the program."""
    source = program_of_nodes("agent_main")
    return b"%d\n%s" % (len(source), source)


def greeting(
    group: Group, options: Options, lifeline: tuple[str, int], environ: Mapping[str, str]
) -> dict[str, Any]:
    """What an agent needs to know before it says hello; ``lifeline`` is where it connects to, on the master
    host: Agent.tie."""
    return {
        "host": group.host,
        "port": options.port,
        "interface": options.interface,
        "gpus": leases_wanted(group, options, environ if group.host == lifeline[0] else {}),
        "gpu_resource": options.gpu_resource,
        "grace": options.grace,
        "lost_after": options.lost_after,
        "stop_signal": options.stop_signal,
        "lifeline": lifeline,
        "suspended_after": 2.5 * options.ping_interval,
    }


def leases_wanted(group: Group, options: Options, prolog: Mapping[str, str]) -> list[int]:
    """How many GPUs to lease for each task: none where a site's prolog chose some for the job script."""
    each = 0 if "CUDA_VISIBLE_DEVICES" in prolog else options.gpus_per_task
    return [0 if task.role == "ps" else each for task in group.tasks]


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """A Grid Engine program: beside the daemon that started the job, in SGE_ROOT, else on PATH.

    The first two before PATH, since with two flavours on a machine PATH can hold the other one's.
    """
    places = [environ.get("SGE_BINARY_PATH", "")]
    if "SGE_ROOT" in environ and "SGE_ARCH" in environ:
        places.append(os.path.join(environ["SGE_ROOT"], "bin", environ["SGE_ARCH"]))
    found = shutil.which(name, path=os.pathsep.join(filter(None, places))) or shutil.which(name)
    return unwrapped(found) if found else None


def unwrapped(program: str, wrappers: str = "/usr/bin", programs: str = "/usr/lib/gridengine") -> str:
    """The program behind a wrapper of Debian's package, a shell script that only sets what a job has set
    already and takes seven times as long as the start of a qrsh itself; any other program as it is."""
    behind = os.path.join(programs, os.path.basename(program))
    is_wrapper = os.path.realpath(os.path.dirname(program)) == wrappers and os.access(behind, os.X_OK)
    return behind if is_wrapper else program


@contextlib.contextmanager
def spared() -> Iterator[None]:
    """Programs that are started inside do not die of the signals which Grid Engine, with -notify or at a soft
    limit, sends to all processes of a job: they start with these blocked. qrsh does not need it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def unhurried() -> Iterator[None]:
    """What is started inside has the policy SCHED_BATCH, sched(7), where this process has the usual one and
    may choose: not every container or C library lets it.

    A thread that qrsh starts wakes the one that waits for it, and says only then that it runs. With the usual
    policy the other one often looks in between, and looks again after 0.1 s, at the start and at the end.
    """
    changed = False
    with contextlib.suppress(OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            changed = True
    try:
        yield
    finally:
        if changed:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def ask_scheduler(environ: Mapping[str, str], *command: str) -> str:
    """What a Grid Engine program prints, e.g. ``ask_scheduler(environ, "qconf", "-sp", "tensorflow")``;
    empty where it cannot be asked."""
    program = find_program(command[0], environ)
    if not program:
        return ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired), spared():
        return subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, errors="replace", timeout=20
        ).stdout
    return ""


def find_qrsh(environ: Mapping[str, str]) -> str:
    """The path of qrsh. Raises UserError."""
    qrsh = find_program("qrsh", environ)
    if not qrsh:
        raise UserError(
            "qrsh not found in SGE_BINARY_PATH, SGE_ROOT or PATH; is the Grid Engine client installed here?"
        )
    return qrsh


def agent_command(group: Group, python: str, environ: Mapping[str, str]) -> list[str]:
    """The command that starts an agent. One single argument for qrsh, since flavours join several
    differently before a login shell reads them."""
    if group.transport == "local":
        return [python, "-c", BOOTSTRAP]
    return [find_qrsh(environ), "-inherit", group.host, f'{shlex.quote(python)} -c "{BOOTSTRAP}"']


MESSAGES: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {  # what agents say, and their fields
    "hello": {
        "address": str,
        "ports": list,
        "topology": list,
        "mask": list,
        "environment": dict,
        "leases": list,
        "pid": int,
    },
    "refuse": {"why": str},
    "started": {"task": int, "pid": int},
    "note": {"text": str},
    "pong": {"usage": list},
    "exit": {"task": int, "status": int, "cpu": (int, float), "memory": int, "why": str},
}


def parse_message(payload: bytes) -> tuple[str, dict[str, Any]]:
    """``parse_message(b'{"type": "refuse", "why": "?"}')`` gives ``("refuse", {"why": "?"})``. ValueError."""
    with contextlib.suppress(AttributeError, KeyError, RecursionError, TypeError, ValueError):
        fields = json.loads(os.fsdecode(payload))
        type_ = fields.pop("type")
        wanted = MESSAGES[type_]
        if fields.keys() == wanted.keys() and all(isinstance(fields[key], wanted[key]) for key in wanted):
            return type_, fields
    raise ValueError(f"no message: {payload[:200]!r}")


@dataclass
class Event:
    """Something that a thread tells the supervisor: a message of an agent, or ``type`` "gone"."""

    link: Link | None
    type: str
    fields: dict[str, Any]


class Link:
    """The launcher's end of one agent: its process (a qrsh, or the agent itself) and a thread that reads.

    The thread writes the tasks' output straight to their logs and puts everything else into ``events``.
    """

    def __init__(
        self, group: Group, logs: Sequence[TaskLog | Output], events: queue.SimpleQueue[Event]
    ) -> None:
        self.group, self.logs, self.events = group, logs, events
        self.process: subprocess.Popen[bytes] | None = None
        self.errors: IO[bytes] | None = None  # what the process writes to stderr
        self.unsent = Outbox()
        self.noise = b""  # what a login shell printed before the agent spoke
        self.heard = 0.0  # monotonic seconds
        self.attempts = 0
        self.ready = False  # to read; what is sent before that waits
        self.said_all = False
        self.printing = False  # while the job's output may be slow, the agent is not silent
        self.sending = threading.Lock()

    @property
    def names(self) -> str:
        """Its tasks, for messages: ``worker:0``, or of several the first and the last."""
        tasks = self.group.tasks
        return tasks[0].name if len(tasks) == 1 else f"{tasks[0].name} to {tasks[-1].name}"

    def start(self, command: list[str]) -> None:
        """Starts the agent's process and the thread that reads from it. Raises OSError."""
        self.attempts += 1
        self.heard = time.monotonic()
        self.noise, self.ready = b"", False
        self.unsent.clear()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - outlives the process
        with unhurried() if self.group.transport == "qrsh" else contextlib.nullcontext():
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0
            )
        assert self.process.stdin
        os.set_blocking(self.process.stdin.fileno(), False)
        self.reader = threading.Thread(target=self.read, args=(self.process,), daemon=True)
        try:
            self.reader.start()
        except RuntimeError as error:
            self.process.kill()
            self.process.wait()
            self.process = None
            raise OSError(str(error)) from None

    def send(self, data: bytes) -> bool:
        """Sends without waiting; False when the pipe is full and ``flush`` has to send the rest.

        Nothing is sent before the agent has spoken: a qrsh that gets input while it connects may take a
        second longer.
        """
        with self.sending:
            self.unsent.add(data)
            return self.write()

    def flush(self) -> bool:
        with self.sending:
            return self.write()

    def write(self) -> bool:
        if not self.ready or not self.process or not self.process.stdin:
            return True
        try:
            self.unsent.write(self.process.stdin.fileno())
        except OSError:  # the other end is gone; the reading thread tells
            self.unsent.clear()
        if self.said_all and not self.unsent.size:
            self.process.stdin.close()
            self.process.stdin = None
        return not self.unsent.size

    def hang_up(self) -> None:
        """Nothing more will be sent; a qrsh whose stdin stays open ends a second later than its task."""
        self.said_all = True
        self.flush()

    def read(self, process: subprocess.Popen[bytes]) -> None:
        """The thread: reads until the agent is gone."""
        why = "its messages could not be read"
        try:
            self.read_frames(process)
            why = ""
        except (OSError, ValueError, UserError) as error:
            why = str(error)
        finally:
            if why:
                process.kill()
            self.events.put(Event(self, "gone", {"status": process.wait(), "why": why}))

    def read_frames(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout
        decoder, fd = Decoder(), process.stdout.fileno()
        while data := os.read(fd, CHUNK):
            self.heard = time.monotonic()
            if not self.ready:
                data = self.skip_noise(data)
            for kind, task, payload in decoder.feed(data):
                if kind == MESSAGE:
                    self.events.put(Event(self, *parse_message(payload)))
                elif task >= len(self.logs):
                    raise ValueError(f"output of task {task} of {len(self.logs)}")
                else:
                    self.printing = True
                    self.logs[task].write(1 if kind == STDOUT else 2, payload)
                    self.heard, self.printing = time.monotonic(), False

    def skip_noise(self, data: bytes) -> bytes:
        """Looks for the agent's first words; once they are there, tells it what has waited to be sent."""
        self.noise, mark, data = (self.noise + data).partition(MARK)
        self.noise = self.noise[-CHUNK:]
        self.ready = bool(mark)
        while not self.flush():  # the pipe is full
            time.sleep(0.01)
        return data

    def printed(self) -> list[str]:
        """The last lines that the start of the agent printed: login shell, qrsh, Python."""
        if not self.errors:
            return []
        size = os.fstat(self.errors.fileno()).st_size
        text = self.noise + b"\n" + os.pread(self.errors.fileno(), CHUNK, max(0, size - CHUNK))
        return [line for line in text.decode(errors="replace").splitlines() if line.strip()][-10:]

    def cut(self) -> None:
        """Ends the connection; the agent, if it still lives, notices and ends its tasks."""
        if self.process and self.process.poll() is None:
            self.process.kill()

    def join(self, seconds: float) -> None:
        """Waits for the thread, which may still have output to pass on."""
        if self.process:
            self.reader.join(max(0.0, seconds))


FILES_PER_AGENT = 4  # its stdin, stdout, stderr and lifeline; a task has its log
OWN_FILES = 64  # of the launcher without agents, amply
THREAD_STACK = 1 << 20  # bytes; Python's threads need little
M_ARENA_MAX = -8  # of mallopt(3)


def make_room(plan: Plan) -> None:
    """Lets this process hold the files and threads of all agents and tasks, whatever the limits of the job.

    Each thread would reserve 8 MiB of stack and 64 MiB for malloc(3), which count against a job's h_vmem.
    The limit of open files is raised no further than needed: what is started here inherits it, and old
    programs close all files that they may have.
    """
    import ctypes
    import resource

    threading.stack_size(THREAD_STACK)
    with contextlib.suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OWN_FILES + FILES_PER_AGENT * len(plan.groups) + len(plan.tasks)
    if resource.RLIM_INFINITY != soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def open_lifeline(agents: int) -> socket.socket:
    """A port on which each agent opens a connection that says nothing: see Agent.tie."""
    lifeline = listen_on(0, backlog=agents)
    threading.Thread(target=hold, args=(lifeline,), daemon=True).start()
    return lifeline


def hold(lifeline: socket.socket) -> None:
    """A thread: keeps all connections; of those that nobody accepts kernels keep 128 or 4096, listen(2)."""
    connections = []
    with contextlib.suppress(OSError):  # shut down, or too many open files: agents can do without
        while True:
            connections.append(lifeline.accept())


# ============================================================================ supervise

OLDEST_PYTHON = "3.9"

# What a start prints when it fails, and what that means; {names} are filled in by explain_start.
START_FAULTS = (
    (r"didn't accept task", "Grid Engine let no task start on {host}: {refusal}"),
    (r"can't resolve host|unknown host|unable to resolve", "Grid Engine cannot resolve the name of {host}"),
    (
        r"cannot change to directory",
        "the job's working directory is not there on {host}; submit from a folder that all hosts see",
    ),
    (
        r"Python 3.9 or later|annotations is not defined|invalid syntax|no attribute 'buffer'",
        f"{{python}} on {{host}} is older than Python {OLDEST_PYTHON}; see --python",
    ),
    (
        r"cannot change to directory|can't chdir",
        "the job's working directory is not there on {host}; submit from a folder that all hosts see",
    ),
    (r"got read error|connection|commlib", "the connection to {host} broke off; is its sge_execd well?"),
)
PASSING_FAULTS = r"didn't accept task|commlib|connection refused"  # worth another try
RETRY_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds


def explain_start(
    host: Host, python: str, pe: ParallelEnvironment, status: int, printed: Sequence[str]
) -> str:
    """Why an agent did not start, from the exit status of its qrsh and the last lines printed."""
    if status in (126, 127):  # of the shell
        return f"{python} cannot be run on {host.name}; see --python"
    refusal = explain_refusal(host, pe)
    for pattern, meaning in START_FAULTS:
        if re.search(pattern, "\n".join(printed)):
            return meaning.format(host=host.name, python=python, refusal=refusal)
    return (
        f"the start on {host.name} ended with exit status {exit_code(status)} before the agent spoke; look "
        "at what the login shell reads there (.bashrc, .cshrc, BASH_ENV), and see --python"
    )


def explain_refusal(host: Host, pe: ParallelEnvironment) -> str:
    """Which of the many causes of "didn't accept task" fit this parallel environment; sge_pe(5)."""
    if not pe.control_slaves:
        return f"control_slaves is FALSE in the parallel environment {pe.name}"
    known = [f"{name} {str(value).upper()}" for name, value in vars(pe).items() if name != "name"]
    attributes = f"{pe.name} has {', '.join(known)}" if pe.name else "qconf -sp does not tell its attributes"
    return (
        f"its {counted(host.slots, 'slot')} may be busy with earlier tasks, the job is being deleted, or the "
        f"parallel environment forbids it ({attributes}); the messages file of its sge_execd tells more"
    )


def pause_before_retry(attempts: int, status: int, printed: Sequence[str]) -> float | None:
    """Seconds until the next try of a start that has failed so often; None where another one cannot help.

    A qrsh that was suspended in the middle of its start ends with 0, silently, as with a login shell that
    exits: then few tries tell one from the other.
    """
    is_passing = re.search(PASSING_FAULTS, "\n".join(printed), re.IGNORECASE)
    pauses = RETRY_PAUSES if is_passing else RETRY_PAUSES[:2] if status == 0 else ()
    return pauses[attempts - 1] if attempts <= len(pauses) else None


@dataclass
class Run:
    """One task as the supervisor sees it."""

    number: int  # of the task within its agent
    task: Task
    link: Link
    status: int | None = None  # as in subprocess; None: not ended, or never reported
    started: float | None = None  # told to start, seconds since the epoch
    ended: float | None = None
    cpu: float = 0.0  # seconds
    memory: int = 0  # bytes
    restarts: int = 0
    stopped: bool = False  # told to end
    done: bool = False

    def outcome(self) -> Outcome:
        return Outcome(
            self.task,
            self.status,
            self.started,
            self.ended,
            self.cpu,
            self.memory,
            self.restarts,
            self.stopped,
        )


class Supervisor:
    """Starts the agents, brings them together, watches over the tasks and ends everything.

    One loop consumes the events of all links; what is due by the clock is done in ``tick``. Tests replace
    the seams.
    """

    STARTS = 64  # agents that may be starting at the same time, so that no sge_execd is flooded
    LOOK = 0.5  # seconds between two looks at all agents
    REPORT = 10.0  # seconds between two lines about missing agents
    LEAVE = 5.0  # seconds for agents to report and leave, after the grace time
    LAST_OUTPUT = 1.0  # seconds for output that is still on its way when all connections are cut
    SAME_SIGNAL = 1.0  # seconds: Grid Engine sends one to a job's process group, then to each process

    def __init__(self, job: Job) -> None:
        self.job, self.options, self.console = job, job.options, job.console
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.links = [self.connect(group) for group in job.plan.groups]
        self.runs_of = {
            link: [Run(*each, link) for each in enumerate(link.group.tasks)] for link in self.links
        }
        self.runs = [run for runs in self.runs_of.values() for run in runs]
        self.awaited = set(awaited_tasks(job.plan.tasks, job.success))
        self.pending = collections.deque(alternate_hosts(self.links))
        self.retries: list[tuple[float, Link]] = []  # with the time of the next try
        self.starting: set[Link] = set()
        self.hellos: dict[Link, Hello] = {}
        self.blocked: set[Link] = set()  # with something unsent
        self.closed: set[Link] = set()  # gone, or given up
        self.leaving: set[Link] = set()  # told goodbye
        self.placements: dict[str, Placement] = {}
        self.notes: set[str] = set()
        self.failure: Failure | None = None
        self.requeue = False
        self.restarts_left = job.options.restarts
        self.stop_by: float | None = None  # monotonic time; set once everything is being ended
        self.signalled: float | None = None  # when the signal came that ends the job
        self.lifeline = open_lifeline(len(self.links))
        self.port = self.lifeline.getsockname()[1]
        self.began = self.told = self.looked = self.now()
        self.start_by = self.began + self.options.start_timeout

    # ---- seams

    def now(self) -> float:
        return time.monotonic()

    def connect(self, group: Group) -> Link:
        return Link(group, self.job.open_logs(group), self.events)

    def wait(self, seconds: float) -> Event | None:
        """The next event, or None when there is none for so long."""
        try:
            return self.events.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    # ---- the loop

    def run(self) -> int:
        """The whole job; returns its exit status."""
        gc.set_threshold(100_000)  # the more tasks, the more that lasts, and looking through it took a third
        threading.Thread(target=self.keep_alive, daemon=True).start()
        while len(self.closed) < len(self.links):
            self.tick()
            event = self.wait(self.patience())
            while event:
                self.handle(event)
                event = self.wait(0)
        return self.finish()

    def keep_alive(self) -> None:
        """A thread: pings the agents, also while the loop waits for a terminal that takes no output."""
        while True:
            time.sleep(self.options.ping_interval)
            for link in list(self.hellos):
                link.send(message("ping"))

    def handle(self, event: Event) -> None:
        if event.link not in self.closed:
            getattr(self, "on_" + event.type)(event.link, **event.fields)

    def patience(self) -> float:
        """Seconds until something may be due."""
        return 0.02 if self.blocked else min([self.LOOK, *(start - self.now() for start, _ in self.retries)])

    def tick(self) -> None:
        """Does what is due; what has to look at all tasks only every LOOK seconds."""
        now = self.now()
        self.blocked = {link for link in self.blocked if not link.flush()}
        self.start_some(now)
        if now - self.looked >= self.LOOK:
            self.look_around(now)

    def look_around(self, now: float) -> None:
        if now - self.looked > 5:
            self.forgive(now - self.looked)
        self.looked = now
        self.look_for_the_lost(now)
        if self.console.broken and self.stop_by is None:
            self.fail(self.console.broken)
        if self.stop_by is not None and now > self.stop_by:
            self.give_up()
        elif self.stop_by is None and len(self.hellos) < len(self.links):
            self.look_for_the_missing(now)
        if self.console.live:
            self.console.status(status_line([run.outcome() for run in self.runs], now - self.began))

    def forgive(self, pause: float) -> None:
        """This process was suspended for so long: that was nobody's silence, and no time is up by it."""
        for link in self.links:
            link.heard += pause
        self.start_by += pause
        if self.stop_by is not None:
            self.stop_by += pause

    # ---- start

    def start_some(self, now: float) -> None:
        """Starts agents, as many at a time as is good for the daemons."""
        self.pending.extend(link for start, link in self.retries if start <= now)
        self.retries = [(start, link) for start, link in self.retries if start > now]
        while self.pending and len(self.starting) < self.STARTS:
            self.start(self.pending.popleft())

    def start(self, link: Link) -> None:
        self.starting.add(link)
        command = agent_command(link.group, self.options.python, self.job.environ)
        self.console.detail(f"starting {link.names} on {link.group.host}: {shlex.join(command)}")
        try:
            link.start(command)
        except (FileNotFoundError, PermissionError):
            self.failed_start(link, 127, "")  # as a shell would say
            return
        except OSError as error:  # too many processes or open files
            self.failed_start(link, 1, str(error))
            return
        lifeline = (self.job.allocation.hosts[0].name, self.port)
        greet = greeting(link.group, self.options, lifeline, self.job.environ)
        self.send(link, self.job.program + message("greet", **greet))

    def send(self, link: Link, data: bytes) -> None:
        """Sends without waiting for a slow connection; ``tick`` goes on where it stopped."""
        if not link.send(data):
            self.blocked.add(link)

    def tell(self, link: Link, type_: str, **fields: Any) -> None:
        self.send(link, message(type_, **fields))

    def on_hello(self, link: Link, **found: Any) -> None:
        found["topology"] = tuple(shared_cpu(*cpu) for cpu in found["topology"])
        for name in ("mask", "ports"):
            found[name] = tuple(found[name])
        self.starting.discard(link)
        self.hellos[link] = Hello(host=link.group.host, **found)
        self.console.detail(f"{link.names} on {link.group.host}: agent {found['pid']} is ready")
        if self.stop_by is not None:
            self.release(link)
        elif len(self.hellos) == len(self.links):
            self.begin()

    def on_refuse(self, link: Link, why: str) -> None:
        """An agent says why nothing can run on its host; the first ends the job, others are said once."""
        self.starting.discard(link)
        if self.stop_by is None:
            self.notes.add(f"{link.group.host}: {why}")
            self.fail(f"{link.names} cannot run on {link.group.host}: {why}", link=link)
        else:
            self.on_note(link, why)
        self.bid_farewell(link)

    def begin(self) -> None:
        """All agents are there: assigns addresses, cores and GPUs, and starts the tasks."""
        hellos = [self.hellos[link] for link in self.links]
        try:
            self.placements, warnings = self.job.place(hellos)
        except UserError as error:
            self.fail(str(error), status=2)
            return
        for warning in warnings:
            self.console.warn(warning)
        for line in placement_table(list(self.placements.values())):
            self.console.say(line)
        shared = message("share", **self.job.share(self.placements))
        for link in self.links:
            self.send(link, shared)
        for run in self.runs:
            self.start_task(run)

    def start_task(self, run: Run) -> None:
        run.started, run.done = run.started or time.time(), False
        self.tell(run.link, "run", task=run.number, **self.job.order(self.placements[run.task.name]))

    def on_started(self, link: Link, task: int, pid: int) -> None:
        run = self.runs_of[link][task]
        self.console.detail(f"{run.task.name} on {run.task.host}: process {pid}")

    def on_note(self, link: Link, text: str) -> None:
        """A warning of an agent; what several agents of a host have to say is said once."""
        note = f"{link.group.host}: {text}"
        if note not in self.notes:
            self.notes.add(note)
            self.console.warn(note)

    def look_for_the_missing(self, now: float) -> None:
        """Says who has not come yet; gives up after the start timeout."""
        missing = [link for link in self.links if link not in self.hellos]
        if now > self.start_by:
            printed = [f"{link.group.host}: {line}" for link in missing for line in link.printed()]
            self.fail(
                f"{names(missing)} did not answer within {self.options.start_timeout:g} s (--start-timeout)",
                printed=printed,
            )
        elif now - self.told > self.REPORT:
            self.told = now
            self.console.say(f"waiting for {names(missing)}, {now - self.began:.0f} s")

    # ---- watch

    def on_pong(self, link: Link, usage: list[tuple[float, int]]) -> None:
        for run, (cpu, memory) in zip(self.runs_of[link], usage):
            run.cpu, run.memory = max(run.cpu, cpu), max(run.memory, memory)

    def look_for_the_lost(self, now: float) -> None:
        """Gives up agents that were silent for too long."""
        for link in [link for link in self.hellos if link not in self.closed]:
            silence = now - link.heard
            if silence > self.options.lost_after and not link.printing:
                why = f"host {link.group.host} is lost: nothing heard of {link.names} for {silence:.0f} s"
                self.lose(link, f"{why} (--lost-after)")

    def lose(self, link: Link, what: str, status: int | None = None) -> None:
        """An agent is out of reach, and the tasks that had not ended with it."""
        self.closed.add(link)
        lost = [run for run in self.runs_of[link] if not run.done]
        for run in lost:
            self.conclude(run)
        self.bid_farewell(link)
        if lost:
            self.fail(what, lost, link, status, link.printed(), requeue=True)
        self.end_if_complete()

    def on_exit(self, link: Link, task: int, status: int, cpu: float, memory: int, why: str) -> None:
        """A task has ended: restart it, or see what that means for the job."""
        run = self.runs_of[link][task]
        run.status, run.ended = status, time.time()
        run.cpu, run.memory = max(run.cpu, cpu), max(run.memory, memory)
        self.job.logs[run.task.name].flush()
        if status and not run.stopped and self.restart(run):
            return
        self.conclude(run)
        if status and not run.stopped:
            what = f"{run.task.name} on {run.task.host} {why or describe_exit(status)}"
            self.fail(what, [run], link, status, requeue=run.task.role == "ps")
        self.release(link)
        self.end_if_complete()

    def restart(self, run: Run) -> bool:
        """Starts a failed task again in its place, on the same port and cores, while restarts are left."""
        if run.task.role == "ps" or not self.restarts_left or self.stop_by is not None:
            return False
        self.restarts_left -= 1
        run.restarts += 1
        how = describe_exit(run.status or 0)
        left = f"{counted(self.restarts_left, 'restart')} left"
        self.console.warn(f"{run.task.name} on {run.task.host} {how}; starting it again ({left})")
        self.job.logs[run.task.name].restart()
        self.start_task(run)
        return True

    def conclude(self, run: Run) -> None:
        """Nothing more is to come from a task."""
        run.done = True
        self.awaited.discard(run.task.name)

    def end_if_complete(self) -> None:
        """Ends the job when the tasks are done that it is about."""
        if not self.awaited:
            self.stop()

    def on_gone(self, link: Link, status: int, why: str) -> None:
        """The agent's connection has ended: as it should, at its start, or in the middle."""
        self.starting.discard(link)
        if link in self.leaving:
            self.closed.add(link)
        elif link in self.hellos:
            how = why or f"{describe_connection(status)} before it reported an exit"
            self.lose(link, f"{link.names} on {link.group.host} is lost: {how}", agent_status(status) or None)
        else:
            self.failed_start(link, status, why)

    def failed_start(self, link: Link, status: int, why: str) -> None:
        """An agent did not start: tries again where that can help, else explains."""
        printed, host = link.printed(), link.group.host
        pause = pause_before_retry(link.attempts, status, printed)
        if self.stop_by is None and pause:
            self.console.say(f"{link.names}: {host} did not take it yet, trying again in {pause:g} s")
            self.retries.append((self.now() + pause, link))
            return
        self.closed.add(link)
        granted = next(granted for granted in self.job.allocation.hosts if granted.name == host)
        reason = why or explain_start(granted, self.options.python, self.job.pe, status, printed)
        self.fail(f"{link.names} could not be started: {reason}", link=link, printed=printed)

    # ---- end

    def fail(
        self,
        what: str,
        runs: Sequence[Run] = (),
        link: Link | None = None,
        status: int | None = None,
        printed: Sequence[str] = (),
        requeue: bool = False,
    ) -> None:
        """Says every failure and keeps the first; ends the job, unless only workers failed and
        ``--on-failure continue`` lets the others go on.

        ``runs`` are the tasks that failed with it, ``printed`` what their agent printed.
        """
        self.console.error(what)
        if self.failure is None and self.stop_by is None:
            self.failure = self.describe(what, runs, link, status, printed)
        only_workers = self.placements and runs and all(run.task.role != "ps" for run in runs)
        if self.options.on_failure == "stop" or not only_workers:
            self.requeue = self.requeue or (requeue and self.stop_by is None)
            self.stop()

    def describe(
        self,
        what: str,
        runs: Sequence[Run] = (),
        link: Link | None = None,
        status: int | None = None,
        printed: Sequence[str] = (),
    ) -> Failure:
        """A failure as the report shows it, with the log and the last lines of the first task."""
        now, host = time.time(), link.group.host if link else ""
        if not runs:
            return Failure(now, what, None, host, status, tuple(printed))
        task = runs[0].task
        lines = (*self.job.logs[task.name].tail(), *printed)
        return Failure(now, what, task, host, status, lines, self.job.folder.log_path(log_name(task)))

    def stop(self) -> None:
        """Ends everything: tasks get the stop signal, agents without tasks say goodbye."""
        if self.stop_by is not None:
            return
        busy = any(run.started and not run.done for run in self.runs)
        self.stop_by = self.now() + self.LEAVE + (self.options.grace if busy else 0.0)
        self.closed.update(self.pending, [link for _, link in self.retries])
        self.pending.clear()
        self.retries.clear()
        for link in self.links:
            running = [run for run in self.runs_of[link] if run.started and not run.done]
            for run in running:
                run.stopped = True
            if running:
                self.tell(link, "stop", tasks=[run.number for run in running])
            self.release(link)

    def release(self, link: Link) -> None:
        """Lets an agent go once nothing of it runs any more."""
        if link in self.hellos and any(not run.done and run.started for run in self.runs_of[link]):
            return
        self.bid_farewell(link)

    def bid_farewell(self, link: Link) -> None:
        if link not in self.leaving:
            self.leaving.add(link)
            self.tell(link, "bye")
            link.hang_up()

    def give_up(self) -> None:
        """The time to leave is over for those agents that are still there."""
        for link in self.links:
            if link not in self.closed:
                self.console.warn(f"{link.names} on {link.group.host}: no answer at the end, cutting it off")
                self.closed.add(link)

    def on_signal(self, _link: None, number: int) -> None:
        """A signal to the launcher: from the user, or from Grid Engine before it ends or suspends the job."""
        now = self.now()
        if number == signal.SIGUSR1 and self.job.is_notified():
            self.console.say("SIGUSR1: the job is about to be suspended")
        elif self.signalled is None:
            self.signalled = now
            self.fail(
                f"stopped by {signal_name(number)}{SIGNALS.get(signal.Signals(number), '')}", status=-number
            )
        elif now - self.signalled > self.SAME_SIGNAL:
            for link in self.links:
                self.tell(link, "kill")

    def finish(self) -> int:
        """Cuts what is left, writes the summary, returns the job's exit status."""
        for link in self.links:
            link.cut()
        end = time.monotonic() + self.LAST_OUTPUT
        for link in self.links:
            link.join(end - time.monotonic())
        self.lifeline.shutdown(socket.SHUT_RDWR)
        if self.console.broken and self.failure is None:
            self.failure = self.describe(self.console.broken)
        status = exit_status(self.failure.status) if self.failure else 0
        if self.requeue and self.job.may_requeue():
            status = 99
        outcomes = [run.outcome() for run in self.runs]
        self.job.sum_up(outcomes, self.placements, self.failure, status, self.now() - self.began)
        return status


def awaited_tasks(tasks: Iterable[Task], success: str) -> list[str]:
    """Whose end ends the job: all workers, or with ``--success chief`` the chief or worker 0; their names."""
    trainers = [task.name for task in tasks if task.role in ("chief", "worker")]
    return trainers[:1] if success == "chief" else trainers


def alternate_hosts(links: Sequence[Link]) -> list[Link]:
    """The links so that neighbours are on different hosts: each sge_execd gets its share of the starts.

    Agents that need no qrsh come last: they are there first all the same.
    """
    seen: collections.Counter[str] = collections.Counter()
    turns = []
    for link in links:
        turns.append((link.group.transport == "local", seen[link.group.host]))
        seen[link.group.host] += 1
    return [link for _, link in sorted(zip(turns, links), key=lambda pair: pair[0])]


def names(links: Sequence[Link]) -> str:
    """Who they are, for messages: ``worker:1 on node2, worker:3 on node4``; of many only the first."""
    return shortened([f"{link.names} on {link.group.host}" for link in links])


# What signals to the job script mean when Grid Engine sends them; qsub(1), -notify, and sge_queue_conf(5).
SIGNALS = {
    signal.SIGUSR1: " (soft run time limit)",
    signal.SIGUSR2: " (the job is being deleted, or its time is over)",
    signal.SIGXCPU: " (soft CPU time limit)",
}


def agent_status(status: int) -> int:
    """How an agent ended, from the status of its connection, as in subprocess: 137 is -9, a SIGKILL."""
    return 128 - status if status > 128 else status


def describe_connection(status: int) -> str:
    """``describe_connection(137)`` gives ``"the agent was killed by SIGKILL"``."""
    return f"the {'agent' if status > 128 else 'connection'} {describe_exit(agent_status(status))}"


def describe_exit(status: int) -> str:
    """``describe_exit(-11)`` gives ``"was killed by SIGSEGV"``."""
    return f"was killed by {exit_name(status)}" if status < 0 else f"ended with exit status {status}"


# ============================================================================ job


def scripts_places(environ: Mapping[str, str]) -> list[str]:
    """Where SCRIPT is looked for: the job's working directory, then where qsub was typed. UserError."""
    try:
        here = os.getcwd()
    except OSError as error:
        raise UserError(
            f"the working directory {environ.get('PWD', '')} cannot be used: {error.strerror}; change to a "
            "folder that exists, or name one with qsub -wd FOLDER"
        ) from None
    return list(dict.fromkeys([here, environ.get("SGE_O_WORKDIR", here)]))


def find_script(script: str, environ: Mapping[str, str]) -> str:
    """The path of SCRIPT; what does not end in .py is a command, which may be in PATH. Raises UserError."""
    is_command = not script.endswith(".py")
    command = shutil.which(script, path=environ.get("PATH")) if is_command else None
    places = scripts_places(environ)
    paths = [command] if command else [os.path.join(place, script) for place in places]
    path = next(filter(os.path.isfile, paths), None)
    if not path:
        where = " or ".join([*([f"PATH ({environ.get('PATH')})"] if is_command else []), *places])
        raise UserError(
            f"no {'command' if is_command else 'script'} {script} in {where} on {socket.gethostname()}; "
            "give its path, in a folder that all hosts see"
        )
    if is_command and not os.access(path, os.X_OK):
        raise UserError(f"{path} is not executable: chmod +x it, or name what runs it: -- bash {script}")
    return path


def log_name(task: Task) -> str:
    return f"{task.role}-{task.index}"


class Job:
    """One job: what was asked for and granted, and where its traces go."""

    def __init__(
        self,
        options: Options,
        environ: Mapping[str, str],
        allocation: Allocation,
        pe: ParallelEnvironment,
        plan: Plan,
        console: Console,
        folder: JobFolder,
    ) -> None:
        self.options, self.environ, self.allocation = options, environ, allocation
        self.pe, self.plan, self.console, self.folder = pe, plan, console, folder
        script, *arguments = options.script
        interpreter = [options.python] if script.endswith(".py") else []
        self.command = [*interpreter, find_script(script, environ)]
        self.arguments = arguments
        self.program = agent_program()
        self.logs: dict[str, TaskLog] = {}

    @property
    def success(self) -> str:
        """Whose end ends the job. Beside a chief and ps, workers are servers that never end by themselves."""
        roles = {task.role for task in self.plan.tasks}
        return self.options.success or ("chief" if {"chief", "ps"} <= roles else "all")

    def open_logs(self, group: Group) -> list[TaskLog]:
        logs = [TaskLog(task, self.folder.log_path(log_name(task)), self.console) for task in group.tasks]
        self.logs.update((task.name, log) for task, log in zip(group.tasks, logs))
        return logs

    def place(self, hellos: Sequence[Hello]) -> tuple[dict[str, Placement], tuple[str, ...]]:
        """Assigns addresses, cores and GPUs; writes cluster.json. Raises UserError."""
        asks = any(name.startswith("SGE_HGR_") for hello in hellos for name in hello.environment)
        qstat = ask_scheduler(self.environ, "qstat", "-j", self.allocation.job_number) if asks else ""
        script = Hello(
            self.allocation.hosts[0].name,
            (),
            tuple(sorted(os.sched_getaffinity(0))),
            environment=self.environ,
        )
        placements, warnings = place(self.plan, hellos, self.allocation, self.options, qstat, script)
        self.cluster = cluster_spec(placements.values())
        self.has_gpus = any(placement.gpus for placement in placements.values())
        self.folder.write_json("cluster.json", cluster_json(self.allocation.job_id, placements.values()))
        return placements, warnings

    def share(self, placements: Mapping[str, Placement]) -> dict[str, Any]:
        """What all tasks have in common: cluster spec, command, environment and working directory."""
        environment = tasks_environment(self.environ)
        addresses = [placement.address or "" for placement in placements.values()]
        environment.update(proxy_environment(self.environ, addresses))
        environment.setdefault("PYTHONUNBUFFERED", "1")  # lines arrive when they are printed
        environment["TF_SUBMIT_JOB_DIR"] = os.path.abspath(self.folder.path)
        return {
            "addresses": self.cluster.addresses,
            "evaluator": self.cluster.evaluator,
            "command": self.command,
            "arguments": self.arguments,
            "tf_config_only": self.options.tf_config_only,
            "env": environment,
            "cwd": os.getcwd(),
        }

    def order(self, placement: Placement) -> dict[str, Any]:
        """What one task is started with."""
        return {
            "role": placement.task.role,
            "index": placement.task.index,
            "env": {
                **thread_environment(placement, self.environ),
                **gpu_environment(placement, self.has_gpus),
            },
            "cores": placement.cores,
            "nodes": placement.nodes if self.options.membind else [],
        }

    def is_notified(self) -> bool:
        """Whether the job was submitted with -notify: then SIGUSR1 announces a suspension."""
        text = ask_scheduler(self.environ, "qstat", "-j", self.allocation.job_number)
        return bool(re.search(r"^notify:\s+TRUE", text, re.M))

    def may_requeue(self) -> bool:
        """Counts this end of the job, and says whether it may ask to be run again (``--requeue``)."""
        if not self.options.requeue or self.options.local:
            return False
        path = os.path.join(self.folder.path, "requeues")
        count = read_number(path, 0) + 1
        if count > self.options.requeue:
            self.console.say(f"the job ran again {self.options.requeue} times already (--requeue)")
            return False
        try:
            with open(path, "w") as file:
                file.write(f"{count}\n")
        except OSError as error:
            self.console.warn(f"cannot write {path}: {error.strerror}; the job is not run again (--requeue)")
            return False
        self.console.say(f"asking Grid Engine to run the job again, {count} of {self.options.requeue} times")
        return True

    def sum_up(
        self,
        outcomes: Sequence[Outcome],
        placements: Mapping[str, Placement],
        failure: Failure | None,
        status: int,
        seconds: float,
    ) -> None:
        """Prints and writes how it went: the first failure first."""
        self.console.status("")
        for log in self.logs.values():
            log.close()
        places = list(placements.values())
        if failure:
            self.console.report(failure_report(failure))
        for line in summary_table(outcomes, places):
            self.console.say(line)
        self.console.say(job_line(outcomes, status, seconds, self.folder.path))
        summary = summary_json(self.allocation.job_id, outcomes, places, failure, status)
        try:
            self.folder.write_json("summary.json", summary)
        except UserError as error:
            self.console.warn(str(error))


# ============================================================================ check

CHECK_BOOTSTRAP = "import sys;sys.path=list(filter(None,sys.path));exec(sys.argv.pop(1))"


@dataclass(frozen=True)
class Findings:
    """What the task of ``--check`` found on its host; see check_main."""

    python: str
    psutil: str  # version; "" where it cannot be imported
    tensorflow: str  # the same
    why: str  # the import of TensorFlow failed
    gpus: int  # that TensorFlow sees
    devices: int  # NVIDIA devices of the host
    cpus: Sequence[int]  # that the task may use
    online: int  # CPUs of the host
    environment: Mapping[str, str]
    unresolved: Mapping[str, str]  # by host: why its name does not resolve
    unreached: Mapping[str, str]  # by host: why there is no connection to it


@dataclass(frozen=True)
class Fault:
    """Something that keeps jobs from running, and how to mend it. ``host``: "" if it is the cluster's."""

    host: str
    what: str
    cure: str = ""


NAMES_CURE = "every host needs the names of all hosts, in DNS or in its /etc/hosts"
PORTS_CURE = (
    "open TCP ports between all hosts (-p PORT takes those from PORT upward), or choose another network with "
    "--interface; does each name lead to the right address? getent hosts NAME"
)
LATE_CURE = (
    "is it up and connected? qhost, ping; where only the first import of TensorFlow is slow, give it more "
    "time with --start-timeout"
)


def judge(
    allocation: Allocation, pe: ParallelEnvironment, options: Options, findings: Mapping[str, Findings]
) -> list[Fault]:
    """The faults in what the tasks found, by host name."""
    others = [host.name for host in allocation.hosts[1:]]
    faults = [] if pe.control_slaves else [Fault("", no_control(pe.name, others or ["other hosts"]))]
    for host, found in findings.items():
        faults += judge_host(host, found, options)
    unresolved = [(host, *gap) for host, found in findings.items() for gap in found.unresolved.items()]
    unreached = [(host, *gap) for host, found in findings.items() for gap in found.unreached.items()]
    return [
        *faults,
        *judge_versions(findings),
        *judge_gaps(unresolved, "does not resolve {}", "its name is not resolved on {}", NAMES_CURE),
        *judge_gaps(unreached, "does not reach {}", "is not reached from {}", PORTS_CURE),
    ]


def judge_host(host: str, found: Findings, options: Options) -> Iterator[Fault]:
    """The faults of one host alone."""
    if version_numbers(found.python) < version_numbers(OLDEST_PYTHON):
        yield Fault(
            host, f"{options.python} is Python {found.python}", f"{OLDEST_PYTHON} is needed; see --python"
        )
    if not found.tensorflow:
        cure = hint(Failure(0.0, found.why)) or f"see there: {options.python} -c 'import tensorflow'"
        yield Fault(host, f"TensorFlow cannot be imported: {found.why}", cure)
    elif not found.gpus and (granted_gpus(found, options) or options.gpus_per_task):
        cure = "it needs NVIDIA's driver and a TensorFlow with CUDA (pip install 'tensorflow[and-cuda]')"
        yield Fault(host, "the job uses GPUs, but TensorFlow sees none", cure)


def version_numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def granted_gpus(found: Findings, options: Options) -> str:
    """The GPUs that the scheduler or the site gave to the task, as they are named to it."""
    granted = found.environment.get(f"SGE_HGR_{options.gpu_resource}", "")
    visible = visible_devices(found.environment.get("CUDA_VISIBLE_DEVICES", ""))
    return granted if granted not in ("", "NONE") else ",".join(visible)


def judge_versions(findings: Mapping[str, Findings]) -> Iterator[Fault]:
    """A fault of each host whose TensorFlow is not the one that most hosts have."""
    hosts: dict[str, list[str]] = {}
    for host, found in findings.items():
        hosts.setdefault(found.tensorflow, []).append(host)
    hosts.pop("", None)
    usual = max(hosts, key=lambda version: len(hosts[version]), default="")
    for version, where in hosts.items():
        what = f"TensorFlow {version}, but {usual} on {shortened(hosts[usual])}"
        for host in where if version != usual else ():
            yield Fault(host, what, "install the same version on all hosts; see also --python")


def judge_gaps(gaps: Sequence[tuple[str, str, str]], active: str, passive: str, cure: str) -> Iterator[Fault]:
    """One fault for each host that is to blame for gaps: (source, target, reason)."""
    for host, own in blame(gaps):
        targets = [target for source, target, _ in own if source == host]
        sources = [source for source, _, _ in own if source != host]
        parts = [text.format(shortened(who)) for text, who in ((active, targets), (passive, sources)) if who]
        reasons = dict.fromkeys(why for _, _, why in own)
        yield Fault(host, f"{' and '.join(parts)}: {', '.join(reasons)}", cure)


def blame(gaps: Sequence[tuple[str, str, str]]) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Puts gaps down to as few hosts as explain them: each time the one that is in most of those left.

    >>> [host for host, _ in blame([("a", "b", "?"), ("c", "b", "?"), ("b", "c", "?")])]
    ['b']
    """
    while gaps:
        pairs = {frozenset(gap[:2]) for gap in gaps}
        ends = collections.Counter(host for pair in pairs for host in pair)
        worst = max(sorted(ends), key=lambda host: ends[host])
        yield worst, [gap for gap in gaps if worst in gap[:2]]
        gaps = [gap for gap in gaps if worst not in gap[:2]]


def pe_warnings(pe: ParallelEnvironment) -> list[str]:
    """What in a parallel environment is not as pe/install.sh sets it, though jobs run."""
    if not pe.name:
        return ["qconf -sp shows no parallel environment here, so it is not checked"]
    wanted = ParallelEnvironment(pe.name, pe.control_slaves)
    differ = [name for name, value in asdict(pe).items() if value != getattr(wanted, name)]
    return [
        f"the parallel environment {pe.name} has {name} TRUE: jobs run, but not every task has limits and an "
        f"accounting record of its own; qconf -rattr pe {name} FALSE {pe.name}"
        for name in differ
    ]


def check_table(
    hosts: Sequence[Host],
    places: Mapping[str, tuple[str, int]],
    findings: Mapping[str, Findings],
    faults: Sequence[Fault],
    options: Options,
) -> list[str]:
    """A line per host: what was found there, and how many faults."""
    header = ["host", "slots", "Python", "psutil", "TensorFlow", "address", "CPUs", "GPUs", "result"]
    count = collections.Counter(fault.host for fault in faults)
    rows = []
    for host in hosts:
        found = findings.get(host.name)
        address = with_port(*places[host.name]) if host.name in places else "-"
        cells = findings_cells(found, address, options) if found else ["?"] * 6
        bad = count[host.name]
        result = counted(bad, "fault") if bad else "ok" if found else "not checked"
        rows.append([host.name, str(host.slots), *cells, result])
    return align([header, *rows], right=("slots",))


def findings_cells(found: Findings, address: str, options: Options) -> list[str]:
    """The cells of a host from Python to GPUs: CPUs that its task may use "of" those that there are, and
    NVIDIA GPUs that TensorFlow sees."""
    granted = granted_gpus(found, options)
    return [
        found.python,
        found.psutil or "-",
        found.tensorflow or "-",
        address,
        f"{number_ranges(found.cpus)} of {found.online}",
        f"{found.gpus} of {found.devices}" + (f" (granted {granted})" if granted else ""),
    ]


def fault_lines(faults: Sequence[Fault], hosts: Sequence[Host]) -> list[str]:
    """Each fault with its cure below it, in the order of the hosts; one that several hosts have only once."""
    order = ["", *(host.name for host in hosts)]
    where: dict[tuple[str, str], list[str]] = {}
    for fault in sorted(faults, key=lambda fault: order.index(fault.host)):
        where.setdefault((fault.what, fault.cure), []).append(fault.host)
    return [
        (f"{shortened(names)}: " if names[0] else "") + what + (f"\n    {cure}" if cure else "")
        for (what, cure), names in where.items()
    ]


class Output:
    """What a task of the check prints, in the place of its log."""

    def __init__(self) -> None:
        self.streams = {1: b"", 2: b""}

    def write(self, stream: int, data: bytes) -> None:
        self.streams[stream] += data

    def findings(self) -> Findings | None:
        """The findings, once they are complete."""
        line = re.search(rb"^\{.*\}\n", self.streams[1], re.MULTILINE)
        return Findings(**json.loads(line[0])) if line else None


class Check:
    """``--check``: runs one task on each host of the job, in the way of any other task, and judges what they
    find. A host that fails keeps no other from being checked."""

    LOOK = 0.1  # seconds between two looks at what is missing
    LEAVE = 5.0  # seconds for the agents to leave

    def __init__(
        self,
        options: Options,
        environ: Mapping[str, str],
        allocation: Allocation,
        pe: ParallelEnvironment,
        console: Console,
    ) -> None:
        self.options, self.environ, self.allocation = options, environ, allocation
        self.pe, self.console = pe, console
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.outputs: dict[Link, Output] = {}
        for group in check_groups(allocation, pe, options):
            output = Output()
            self.outputs[Link(group, [output], self.events)] = output
        self.lifeline = open_lifeline(len(self.outputs))
        self.places: dict[str, tuple[str, int]] = {}  # address and port, by host
        self.answered: set[Link] = set()
        self.failed: set[Link] = set()
        self.retries: dict[Link, float] = {}  # when a start is tried again, in monotonic seconds
        self.faults: list[Fault] = []

    def run(self) -> int:
        """Returns the exit status: 1 if there are faults."""
        self.console.say(f"checking {counted(len(self.outputs), 'host')}")
        with caught_signals(self.events):
            for link in self.outputs:
                self.start(link)
            self.wait_for(lambda link: link not in self.answered)
            for link in self.answered - self.failed:
                self.start_task(link)
            self.wait_for(lambda link: not self.outputs[link].findings())
            status = self.report()
            self.dismiss()  # cutting off a host that hangs may make Grid Engine end the job
        return status

    def start(self, link: Link) -> None:
        """Starts the agent of a host; it gets no pings, and must not take that for a loss."""
        self.retries.pop(link, None)
        lifeline = (self.allocation.hosts[0].name, self.lifeline.getsockname()[1])
        silence = {"lost_after": 3 * self.options.start_timeout, "suspended_after": math.inf}
        greet = {**greeting(link.group, self.options, lifeline, self.environ), **silence}
        try:
            link.start(agent_command(link.group, self.options.python, self.environ))
            link.send(agent_program() + message("greet", **greet))
        except (UserError, OSError) as error:
            self.fail(link, str(error))

    def start_task(self, link: Link) -> None:
        peers = {host.name: self.places.get(host.name) for host in self.allocation.hosts}
        program = program_of_nodes("check_main").decode()
        share = {
            "addresses": {},
            "evaluator": "",
            "command": [self.options.python, "-c", CHECK_BOOTSTRAP, program],
            "arguments": [json.dumps([self.places.get(link.group.host), peers])],
            "tf_config_only": True,
            "env": tasks_environment(self.environ),
            "cwd": os.getcwd(),
        }
        link.send(message("share", **share))
        link.send(message("run", task=0, role="check", index=0, env={}, cores=None, nodes=[]))

    def wait_for(self, is_missing: Callable[[Link], bool]) -> None:
        """Waits until nobody is missing; who still is after the start timeout has failed."""
        began = told = now = time.monotonic()
        while missing := [link for link in self.outputs if link not in self.failed and is_missing(link)]:
            with contextlib.suppress(queue.Empty):
                self.handle(self.events.get(timeout=self.LOOK))
            now = time.monotonic()
            for link in missing:
                link.flush()
                if self.retries.get(link, math.inf) <= now:
                    self.start(link)
                if now - began > self.options.start_timeout:
                    self.fail(link, f"no answer within {self.options.start_timeout:g} s", LATE_CURE)
            if now - told > Supervisor.REPORT:
                told = now
                hosts = shortened([link.group.host for link in missing])
                self.console.say(f"waiting for {hosts}, {now - began:.0f} s")

    def handle(self, event: Event) -> None:
        if event.link not in self.failed:
            getattr(self, "on_" + event.type)(event.link, **event.fields)

    def on_hello(self, link: Link, address: str, ports: list[int], **_: Any) -> None:
        self.answered.add(link)
        self.places[link.group.host] = (address, ports[0])

    def on_refuse(self, link: Link, why: str) -> None:
        self.answered.add(link)
        self.faults.append(Fault(link.group.host, why))

    def on_signal(self, _link: None, number: int) -> None:
        raise UserError(f"the check was stopped by {signal_name(number)}")

    def on_note(self, link: Link, text: str) -> None:
        self.console.warn(f"{link.group.host}: {text}")

    def on_started(self, link: Link, **_: Any) -> None:
        pass

    def on_exit(self, link: Link, status: int, why: str, **_: Any) -> None:
        """The task waits until it is killed, unless it has failed."""
        if not self.outputs[link].findings():
            lines = last_lines(self.outputs[link].streams[2])
            self.fail(link, f"the task of the check {why or describe_exit(status)}", *lines)

    def on_gone(self, link: Link, status: int, why: str) -> None:
        printed = link.printed()
        pause = pause_before_retry(link.attempts, status, printed)
        if link in self.answered:
            self.fail(link, why or describe_connection(status), *printed)
        elif pause:
            self.retries[link] = time.monotonic() + pause
        else:
            granted = next(host for host in self.allocation.hosts if host.name == link.group.host)
            host = dataclasses.replace(granted, name="this host")
            self.fail(link, explain_start(host, self.options.python, self.pe, status, printed), *printed)

    def fail(self, link: Link, what: str, *lines: str) -> None:
        """Nothing more will be heard of a host; the lines tell more, or what to do."""
        self.failed.add(link)
        self.faults.append(Fault(link.group.host, what, "\n    ".join(lines)))

    def dismiss(self) -> None:
        """Lets the agents go, and with them the tasks."""
        end = time.monotonic() + self.LEAVE
        for link in self.outputs:
            link.send(message("bye"))
            link.hang_up()
        for link in self.outputs:
            if link.process:
                link.reader.join(max(0.0, end - time.monotonic()))
            link.cut()

    def report(self) -> int:
        """Prints the table, the warnings and the faults."""
        findings = {link.group.host: output.findings() for link, output in self.outputs.items()}
        found = {host: known for host, known in findings.items() if known}
        faults = self.faults + judge(self.allocation, self.pe, self.options, found)
        for line in check_table(self.allocation.hosts, self.places, found, faults, self.options):
            self.console.say(line)
        for warning in [] if self.options.local else pe_warnings(self.pe):
            self.console.warn(warning)
        for line in fault_lines(faults, self.allocation.hosts):
            self.console.error(line)
        self.console.say(f"{counted(len(faults), 'fault')} found")
        return int(bool(faults))


def check_groups(allocation: Allocation, pe: ParallelEnvironment, options: Options) -> list[Group]:
    """A group of one task for each host; only the master host without control_slaves, see no_control."""
    master = allocation.hosts[0]
    return [
        Group(
            host.name,
            (Task("check", number, host.name),),
            "qrsh" if qrsh_limit(host, host is master, pe, options) else "local",
        )
        for number, host in enumerate(allocation.hosts if pe.control_slaves else [master])
    ]


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
    grace: float = 5.0  # within ten seconds after a launcher is killed nothing of the job is left
    stop_signal: int = signal.SIGTERM
    restarts: int = 0
    on_failure: str = "stop"
    success: str | None = None
    requeue: int = 0
    # output
    tensorboard: bool = False
    tensorboard_logdir: str | None = None  # None: the job's folder
    tensorboard_bind: str | None = None  # address; None: that of the tasks' network
    color: str = "auto"
    verbosity: int = 0  # -q: -1, -v: 1
    dry_run: bool = False
    json: bool = False
    check: bool = False

    @property
    def ping_interval(self) -> float:
        """Seconds between two pings: a few must fail before a host counts as lost."""
        return min(5.0, self.lost_after / 4)


EXAMPLES = """\
examples:
  qsub -pe tensorflow 8 -binding linear:1 tf_submit.py example.py --epochs 10
  qsub -pe tensorflow 3-99 tf_submit.py --ps 2 --restarts 3 train.py
  qsub -pe tensorflow 4 tf_submit.py --ps 0 -- apptainer exec --nv image.sif python3 train.py
  tf_submit.py --local 3 example.py
"""


def amount(text: str) -> int:
    """A number from 0 upward, as large as a number of slots can be: ``amount("3")`` gives 3."""
    if not SLOTS.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 999999")
    return int(text)


def positive(text: str) -> int:
    """An amount of at least 1."""
    if not amount(text):
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return int(text)


def port_number(text: str) -> int:
    """A TCP port: ``port_number("2222")`` gives 2222."""
    if not 0 < positive(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text} is not a port: 1 to 65535")
    return int(text)


def seconds(text: str) -> float:
    """A time in seconds, at least 0: ``seconds("0.5")`` gives 0.5."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def timeout(text: str) -> float:
    """A time in seconds, at least 1: ``timeout("60")`` gives 60.0."""
    if seconds(text) < 1:
        raise argparse.ArgumentTypeError("at least one second is needed")
    return float(text)


def signal_number(text: str) -> int:
    """A signal by name or number: ``signal_number("USR1")`` gives 10."""
    name = text.upper() if text.upper().startswith("SIG") else "SIG" + text.upper()
    try:
        return signal.Signals(int(text)) if text.isdigit() else signal.Signals[name]
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a signal; for example TERM, INT, USR1") from None


class Parser(argparse.ArgumentParser):
    """Argument parser whose faults are errors like all others."""

    def error(self, text: str) -> NoReturn:
        raise UserError(f"{text}; see --help")


def make_parser() -> Parser:
    """The command line; every default is the one in Options."""
    parser = Parser(
        prog="tf_submit.py",
        usage="%(prog)s [options] SCRIPT [arguments of the script]",
        description="Runs a TensorFlow script as parameter servers and workers on the slots of a Grid Engine "
        "job, or on this machine.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )

    def group(title: str) -> Callable[..., None]:
        """Adds options to a group; ``{}`` in a help text is the default."""
        arguments = parser.add_argument_group(title)

        def add(*flags: str, help: str, **how: Any) -> None:
            name = how.get("dest") or flags[-1].lstrip("-").replace("-", "_")
            default = getattr(Options, name, None)
            arguments.add_argument(*flags, help=help.format(default), default=default, **how)

        return add

    add = group("where")
    add("--local", type=positive, metavar="N", help="run N tasks on this machine, without a scheduler")
    add(
        "--dry-run",
        action="store_true",
        help="print the placement and start nothing; ? is known only at the start",
    )
    add("--json", action="store_true", help="with --dry-run: print it as JSON")
    add("--check", action="store_true", help="check the installation on all hosts of the job, without SCRIPT")

    add = group("tasks")
    add("--ps", type=amount, metavar="N", help="parameter servers; 0 for jobs of workers only (default: {})")
    add("--chief", action="store_true", help="make one task the chief")
    add(
        "--evaluator",
        action="store_true",
        help="make one task the evaluator, which gets the stop signal when the training is done",
    )
    add("--spread-ps", action="store_true", help="put parameter servers on different hosts")
    add("--slots-per-task", type=positive, metavar="K", help="slots of a host for each task (default: {})")

    add = group("network")
    add(
        "-p",
        "--port",
        type=port_number,
        metavar="BASE",
        help="take ports from BASE upward (default: any free)",
    )
    add(
        "--interface", metavar="NAME", help="network of the tasks: an interface (ib0) or subnet (10.1.0.0/16)"
    )

    add = group("cores and GPUs")
    add(
        "--bind",
        choices=("auto", "cores", "none"),
        help="pin tasks to cores: as the scheduler bound the job, always, never (default: {})",
    )
    add("--membind", action="store_true", help="bind memory to the NUMA nodes of the task's cores")
    add(
        "--gpus-per-task",
        type=amount,
        metavar="N",
        help="GPUs of each task save the ps (default: its share of those whose ids the scheduler grants)",
    )
    add("--gpu-resource", metavar="NAME", help="the scheduler's name of the GPU complex (default: {})")
    add("--share-gpus", action="store_true", help="let tasks share GPUs when there are too few")

    add = group("script")
    add("--python", metavar="PATH", help="Python on the nodes (default: the one that runs tf_submit.py)")
    add("--tf-config-only", action="store_true", help="append no -s, -w, --job_name, --task_index")

    add = group("failure and end")
    add("--on-failure", choices=("stop", "continue"), help="when a worker fails (default: {})")
    add(
        "--success",
        choices=("all", "chief"),
        help="done when all workers are, or the chief (worker 0) is (default: all; chief where there are "
        "a chief and ps)",
    )
    add(
        "--restarts",
        type=amount,
        metavar="N",
        help="start failed workers again, N times in all (default: {})",
    )
    add(
        "--requeue",
        type=amount,
        metavar="N",
        help="when a ps or host is lost let the scheduler run the job again, at most N times (default: {})",
    )
    add("--grace", type=seconds, metavar="S", help="seconds from the stop signal to SIGKILL (default: {})")
    add(
        "--stop-signal",
        type=signal_number,
        metavar="SIGNAL",
        help="how tasks are told to end (default: TERM)",
    )
    add("--start-timeout", type=timeout, metavar="S", help="seconds for all tasks to come up (default: {})")
    add(
        "--lost-after",
        type=timeout,
        metavar="S",
        help="seconds of silence after which a host is lost (default: {})",
    )
    add("--per-host", action="store_true", help="one agent per host instead of one per task, for big jobs")

    add = group("output")
    add(
        "--tensorboard",
        action="store_true",
        help="run TensorBoard on the master host as long as the job runs",
    )
    add("--tensorboard-logdir", metavar="DIR", help="what TensorBoard shows (default: the job's folder)")
    add(
        "--tensorboard-bind",
        metavar="ADDRESS",
        help="where TensorBoard listens, 127.0.0.1 for this host only (default: the network of the tasks)",
    )
    add(
        "-q",
        "--quiet",
        action="store_const",
        const=-1,
        dest="verbosity",
        help="only warnings and the tasks' lines",
    )
    add(
        "-v", "--verbose", action="store_const", const=1, dest="verbosity", help="also what happens in detail"
    )
    add("--color", choices=("auto", "always", "never"), help="colours (default: {}: on a terminal)")
    parser.add_argument("-h", "--help", action="help", help="show this help")
    parser.add_argument("--version", action="version", version=f"tf_submit {__version__}")
    parser.add_argument("script", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def parse_options(argv: Sequence[str]) -> Options:
    """``parse_options(["--ps", "2", "train.py", "--epochs", "3"])``. Raises UserError."""
    found = vars(make_parser().parse_args(argv))
    script = found["script"]
    found["script"] = tuple(script[1:] if script[:1] == ["--"] else script)
    empty = [name.replace("_", "-") for name, value in found.items() if value == ""]
    if empty:  # of a variable that is not set, say
        raise UserError(f"--{empty[0]} needs a value that is not empty; see --help")
    options = Options(**found)
    if options.json and not options.dry_run:
        raise UserError("--json belongs to --dry-run, which prints the placement; see --help")
    if options.check and options.script:
        raise UserError(f"--check runs no script: leave {shlex.join(options.script)} out")
    if not options.script and not options.check:
        raise UserError("which script? Give SCRIPT and its arguments after the options; see --help")
    return options


def read_grant(options: Options, environ: Mapping[str, str]) -> tuple[Allocation, ParallelEnvironment]:
    """What the scheduler granted, or with ``--local`` this machine. Raises UserError."""
    if options.local:
        name = "check" if options.check else os.path.basename(options.script[0])
        return local_allocation(options.local, name, "localhost"), ParallelEnvironment()
    allocation = read_allocation(environ)
    return allocation, parse_pe(ask_scheduler(environ, "qconf", "-sp", environ.get("PE", "")))


def run(options: Options, environ: Mapping[str, str]) -> int:
    """Runs a job; returns its exit status. Raises UserError before anything is started."""
    console = Console(options.color, options.verbosity)
    allocation, pe = read_grant(options, environ)
    if options.check:
        return Check(options, environ, allocation, pe, console).run()
    plan = make_plan(allocation, pe, options)
    for warning in plan.warnings:
        console.warn(warning)
    if options.dry_run:
        return show_plan(allocation, plan, options, console)
    find_script(options.script[0], environ)
    if any(group.transport == "qrsh" for group in plan.groups):
        find_qrsh(environ)
    if options.local:
        folder = JobFolder.create_local(allocation.job_name)
        allocation = dataclasses.replace(allocation, job_id=folder.job_id)
    else:
        folder = JobFolder.create(allocation.job_name, allocation.job_id)
    console.log_to(folder.log_path("tf_submit"))
    make_room(plan)
    supervisor = Supervisor(Job(options, environ, allocation, pe, plan, console, folder))
    master = allocation.hosts[0].name
    with caught_signals(supervisor.events), tensorboard(options, master, folder, environ, console):
        status = supervisor.run()
    console.close()
    return status


@contextlib.contextmanager
def caught_signals(events: queue.SimpleQueue[Event]) -> Iterator[None]:
    """Meanwhile signals become events for the supervisor."""
    caught = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)

    def note(number: int, _frame: object) -> None:
        events.put(Event(None, "signal", {"number": number}))

    before = {number: signal.signal(number, note) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_plan(allocation: Allocation, plan: Plan, options: Options, console: Console) -> int:
    """``--dry-run``: the placement as far as it is known before the start."""
    if options.json:
        console.show(1, [encode(json.dumps(plan_json(allocation.job_id, plan, options))), b"\n"])
    else:
        for line in placement_table(planned(plan, options), planned=True):
            console.say(line)
    if console.broken:
        raise UserError(console.broken)
    return 0


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """The command; returns its exit status."""
    try:
        return run(parse_options(argv), environ)
    except UserError as error:
        print(f"tf_submit: error: {error}", file=sys.stderr)
        return 2


def original_arguments() -> list[str]:
    """sys.argv; when csh started this file, the command line of that csh (see the head of this file), which
    is its name, this file or -s, and the arguments."""
    encoded = os.environ.pop("TF_SUBMIT_CMDLINE", "")
    if not encoded:
        return sys.argv
    return [os.fsdecode(word) for word in base64.b64decode(encoded).split(b"\0")[1:-1]]


def fill_standard_streams() -> None:
    """Opens those of stdin, stdout and stderr that are closed on /dev/null: else the next files to be
    opened, logs for example, would take their places and get what is printed."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def command() -> NoReturn:
    """Entry point of the installed ``tf_submit``."""
    fill_standard_streams()
    status = main(original_arguments()[1:])
    os._exit(status)  # sys.exit would spend 10 ms on tidying up what ends with the process


if __name__ == "__main__":
    command()
