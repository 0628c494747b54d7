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


# One line of the host file: host slots [queue [column 4]]; sge_pe(5), "$pe_hostfile".
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SLOTS = re.compile(r"[0-9]{1,6}")


def read_allocation(environ: Mapping[str, str]) -> Allocation:
    """Read what the scheduler granted to this job: the file that PE_HOSTFILE names, and the job's variables.

    JOB_ID 17 becomes "17", or "17.3" in task 3 of an array job (SGE_TASK_ID).
    Raises UserError outside a parallel job, or where file and variables make no sense.
    """
    path = environ.get("PE_HOSTFILE")
    if not path:
        raise UserError(_why_no_host_file(environ))
    try:
        with open(path, encoding="utf-8", errors="backslashreplace") as lines:
            hosts = parse_hostfile(lines.read(), path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: this host file exists on the master host only, "
                        "while the job runs") from error
    _check_slots(environ.get("NSLOTS", ""), hosts, path)
    return Allocation(_job_id(environ), environ.get("JOB_NAME", "tf_submit"), hosts)


def local_allocation(slots: int, job_name: str, host: str, job_id: str = "local") -> Allocation:
    """The allocation of a run without a scheduler: so many slots on this machine, named ``host``."""
    return Allocation(job_id, job_name, (Host(host, slots),))


def parse_hostfile(text: str, path: str) -> tuple[Host, ...]:
    """Merge the lines of a host file, one per queue instance, into hosts in first-seen order.

    >>> parse_hostfile("n1 1 all.q@n1 0,1\\nn2 2\\nn1 3 fat.q@n1 0,1\\n", "pe_hostfile")[0]
    Host(name='n1', slots=4, queues=('all.q@n1', 'fat.q@n1'), binding=('0,1',))
    """
    hosts: dict[str, Host] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            found = _parse_host(line, f"{path}:{number}")
            hosts[found.name] = _merge(hosts.get(found.name), found)
    if not hosts:
        raise UserError(f"{path}: the host file is empty: it should hold one line "
                        "\"host slots queue binding\" for each granted queue instance")
    return tuple(hosts.values())


def parse_pe(text: str) -> ParallelEnvironment:
    """Read what `qconf -sp NAME` prints; attributes that this scheduler does not know keep their defaults.

    >>> parse_pe("pe_name  tight\\ncontrol_slaves  FALSE\\n").control_slaves
    False
    """
    known = {key: default for key, default in vars(ParallelEnvironment()).items() if key != "name"}
    found: dict[str, Any] = {}
    for number, line in enumerate(text.replace("\\\n", " ").split("\n"), start=1):
        key, value = (*line.split(None, 1), "", "")[:2]
        value = value.strip()
        if key == "pe_name":
            found["name"] = value
        elif key in known:
            if value.upper() not in ("TRUE", "FALSE"):
                raise UserError(f"qconf -sp:{number}: {line.strip()!r}: {key} should be TRUE or FALSE")
            found[key] = value.upper() == "TRUE"
    return ParallelEnvironment(**found)


def _why_no_host_file(environ: Mapping[str, str]) -> str:
    if "JOB_ID" in environ:
        return (f"job {environ['JOB_ID']} has no parallel environment: submit it with one, "
                "as in: qsub -pe tensorflow 4 tf_submit.py SCRIPT")
    return ("this is no Grid Engine job (PE_HOSTFILE is not set): submit it, as in: "
            "qsub -pe tensorflow 4 tf_submit.py SCRIPT; or run it on this machine: "
            "tf_submit.py --local 3 SCRIPT")


def _parse_host(line: str, where: str) -> Host:
    """One line, e.g. "node1 2 all.q@node1 0,0:0,1"; ``where`` is "file:line" for the error."""
    name, slots, queue, binding = (*line.split()[:4], "", "", "")[:4]
    if not _HOST.fullmatch(name):
        raise UserError(f"{where}: {line.strip()!r}: {name!r} is no host name; "
                        "a line should read \"host slots queue binding\"")
    if not _SLOTS.fullmatch(slots) or int(slots) == 0:
        raise UserError(f"{where}: {line.strip()!r}: the slots, {slots!r}, should be a number from 1 up; "
                        "a line should read \"host slots queue binding\"")
    return Host(name, int(slots), (queue,) if queue else (), (binding,) if binding else ())


def _merge(known: Host | None, found: Host) -> Host:
    """Add another queue instance of a host; every distinct queue and binding is kept once."""
    if known is None:
        return found
    return Host(known.name, known.slots + found.slots, tuple(dict.fromkeys(known.queues + found.queues)),
                tuple(dict.fromkeys(known.binding + found.binding)))


def _check_slots(nslots: str, hosts: Sequence[Host], path: str) -> None:
    if not nslots:
        return
    if not _SLOTS.fullmatch(nslots):
        raise UserError(f"NSLOTS={nslots!r} should be a number")
    granted = sum(host.slots for host in hosts)
    if granted != int(nslots):
        raise UserError(f"{path}: the host file grants {granted} slots, but NSLOTS is {nslots}: "
                        "the administrator should look at this parallel environment; "
                        f"with NSLOTS={granted} in its environment tf_submit trusts the file")


def _job_id(environ: Mapping[str, str]) -> str:
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
    seats, warnings = _seats(allocation.hosts, options.slots_per_task)
    roles = _roles(len(seats), options)
    if options.spread_ps:
        seats = _spread(seats, options.ps)
    tasks = tuple(Task(role, index, host, options.slots_per_task)
                  for (role, index), host in zip(roles, seats))
    return Plan(tasks, _groups(tasks, allocation, pe, options), warnings)


def _seats(hosts: Sequence[Host], slots_per_task: int) -> tuple[list[str], tuple[str, ...]]:
    """The host of every task that the slots have room for, and a warning about slots left over."""
    seats = [host.name for host in hosts for _ in range(host.slots // slots_per_task)]
    odd = [f"{host.slots % slots_per_task} of {host.slots} on {host.name}"
           for host in hosts if host.slots % slots_per_task]
    if not odd:
        return seats, ()
    return seats, (f"slots left over by --slots-per-task {slots_per_task}: {_some(odd)}",)


def _some(names: Sequence[str], most: int = 8) -> str:
    """Join names for a message, e.g. "node1, node2 and 298 more"."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _roles(tasks: int, options: Options) -> list[tuple[str, int]]:
    """Role and index of each task in the order of the cluster spec."""
    counts = {"ps": options.ps, "chief": int(options.chief), "worker": 1, "evaluator": int(options.evaluator)}
    needed = sum(counts.values())
    if tasks < needed:
        wanted = ", ".join(f"{count} {role}" for role, count in counts.items() if count)
        per_task = f" of {options.slots_per_task} slots each" if options.slots_per_task > 1 else ""
        raise UserError(f"the job has room for {tasks} tasks{per_task}, but {wanted} need {needed}: "
                        "ask for more slots (-pe NAME SLOTS) or fewer roles")
    counts["worker"] += tasks - needed
    return [(role, index) for role, count in counts.items() for index in range(count)]


def _spread(seats: Sequence[str], count: int) -> list[str]:
    """Move ``count`` seats to the front that are on different hosts as far as there are any."""
    nth: collections.Counter[str] = collections.Counter()
    turns = []
    for position, host in enumerate(seats):
        turns.append((nth[host], position))
        nth[host] += 1
    first = [position for _, position in sorted(turns)[:count]]
    taken = set(first)
    return [seats[position] for position in first] + [
        host for position, host in enumerate(seats) if position not in taken]


def _groups(tasks: Sequence[Task], allocation: Allocation, pe: ParallelEnvironment,
            options: Options) -> tuple[Group, ...]:
    """One group per task, or per host where asked or where the PE takes only one qrsh per host."""
    by_host: dict[str, list[Task]] = {}
    for task in tasks:
        by_host.setdefault(task.host, []).append(task)
    others = [host for host in by_host if host != allocation.hosts[0].name]
    if others and not pe.control_slaves:
        raise UserError(_no_control(pe.name, others))
    together = options.per_host or pe.daemon_forks_slaves
    groups = []
    for host in allocation.hosts:
        here = by_host.get(host.name, [])
        bundles = [tuple(here)] if together and here else [(task,) for task in here]
        local = len(bundles) - _qrsh_limit(host, host is allocation.hosts[0], pe, options)
        groups += [Group(host.name, bundle, "local" if number < local else "qrsh")
                   for number, bundle in enumerate(bundles)]
    return tuple(groups)


def _qrsh_limit(host: Host, is_master: bool, pe: ParallelEnvironment, options: Options) -> int:
    """How many qrsh tasks the execution daemon of a host takes; sge_pe(5)."""
    if options.local is not None or not pe.control_slaves or (is_master and pe.master_forks_slaves):
        return 0
    return host.slots - (is_master and pe.job_is_first_task)


def _no_control(pe: str, hosts: Sequence[str]) -> str:
    return (f"the parallel environment {pe} has control_slaves FALSE, so Grid Engine starts no tasks on "
            f"{_some(hosts)}: the administrator can set control_slaves TRUE (qconf -mp {pe}); "
            "jobs on one host run as it is")


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


@dataclass(frozen=True)
class ClusterSpec:
    """The addresses of a job by role, without the evaluator, and the texts that its tasks need, made once."""

    addresses: Mapping[str, Sequence[str]]  # {"ps": ["node1:2222"], "worker": ["node2:2222", …]}
    text: str  # the same as JSON
    evaluator: str  # its address, "" when there is none
    ps_hosts: str  # "node1:2222,node2:2222"
    worker_hosts: str  # the chief first: between ps and workers of old scripts, worker 0 is the chief


def place(plan: Plan, hellos: Sequence[Hello], allocation: Allocation, options: Options,
          qstat: str = "", script: Hello | None = None) -> tuple[dict[str, Placement], tuple[str, ...]]:
    """Decide where each task runs: placements by task name, in the plan's order, and warnings.

    ``hellos`` are those of ``plan.groups``, in their order; ``qstat`` is what `qstat -j JOB_ID` printed;
    ``script`` is what the waiting job script found for itself on the master host.
    """
    found = {task.name: Placement(task, _address(group, hello, number), threads=task.slots)
             for group, hello in zip(plan.groups, hellos) for number, task in enumerate(group.tasks)}
    return {task.name: found[task.name] for task in plan.tasks}, ()


def _address(group: Group, hello: Hello, number: int) -> str:
    """"host:port" of a group's task; an IPv6 address goes into brackets."""
    host = hello.address or group.host
    return f"[{host}]:{hello.ports[number]}" if ":" in host else f"{host}:{hello.ports[number]}"


def cluster_spec(placements: Iterable[Placement]) -> ClusterSpec:
    """Collect the addresses of placements, which must come in the plan's order.

    Raises UserError when there are so many that no process could be given them.
    """
    addresses: dict[str, list[str]] = {}
    for placement in placements:
        addresses.setdefault(placement.task.role, []).append(str(placement.address))
    evaluator = addresses.pop("evaluator", [""])[0]
    text = json.dumps(addresses, separators=(",", ":"))
    if len(text) > _LONGEST:
        tasks = sum(map(len, addresses.values()))
        raise UserError(f"the cluster spec of {tasks} tasks takes {len(text)} bytes in TF_CONFIG, but Linux "
                        f"passes on {_LONGEST}: run fewer tasks (--slots-per-task)")
    workers = [*addresses.get("chief", ()), *addresses.get("worker", ())]
    return ClusterSpec(addresses, text, evaluator, ",".join(addresses.get("ps", ())), ",".join(workers))


# Linux takes strings of up to 32 pages in an environment (MAX_ARG_STRLEN, execve(2)); some room for the rest.
_LONGEST = 32 * 4096 - 256


def tf_config(cluster: ClusterSpec, task: Task) -> str:
    """The value of TF_CONFIG. An evaluator is in a cluster of its own, as TensorFlow wants it, since it
    takes no part in the training."""
    text = cluster.text
    if task.role == "evaluator":
        text = json.dumps({"evaluator": [cluster.evaluator]}, separators=(",", ":"))
    return f'{{"cluster":{text},"task":{{"type":"{task.role}","index":{task.index}}}}}'


def script_arguments(arguments: Sequence[str], cluster: ClusterSpec, task: Task,
                     tf_config_only: bool = False) -> list[str]:
    """The arguments of a task's script: placeholders filled in, else the classic flags appended."""
    if tf_config_only:
        return list(arguments)
    filled = fill_placeholders(arguments, cluster, task)
    return [*arguments, *_classic_flags(cluster, task)] if filled is None else filled


def fill_placeholders(arguments: Sequence[str], cluster: ClusterSpec, task: Task) -> list[str] | None:
    """Fill {ps_hosts}, {worker_hosts}, {job_name} and {task_index} in; None where there are none.

    "--job_name={job_name}" becomes "--job_name=worker"; other braces stay as they are.
    """
    if not any(placeholder in argument for argument in arguments for placeholder in _PLACEHOLDERS):
        return None
    values = dict(zip(_PLACEHOLDERS, (cluster.ps_hosts, cluster.worker_hosts, *_classic_role(cluster, task))))
    pattern = re.compile("|".join(map(re.escape, values)))
    return [pattern.sub(lambda found: values[found[0]], argument) for argument in arguments]


_PLACEHOLDERS = ("{ps_hosts}", "{worker_hosts}", "{job_name}", "{task_index}")


def _classic_role(cluster: ClusterSpec, task: Task) -> tuple[str, str]:
    """Job name and task index where there is no chief: the chief is worker 0 and the others follow it."""
    if task.role == "chief":
        return "worker", "0"
    shift = len(cluster.addresses.get("chief", ())) if task.role == "worker" else 0
    return task.role, str(task.index + shift)


def _classic_flags(cluster: ClusterSpec, task: Task) -> list[str]:
    job_name, task_index = _classic_role(cluster, task)
    servers = ["-s", cluster.ps_hosts] if cluster.ps_hosts else []
    return [*servers, "-w", cluster.worker_hosts, "--job_name", job_name, "--task_index", task_index]


def thread_environment(placement: Placement, environ: Mapping[str, str]) -> dict[str, str]:
    """The sizes of TensorFlow's and OpenMP's thread pools, save those that the user's ``environ`` sets."""
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    return {name: str(placement.threads) for name in names if name not in environ}


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
    names = ("no_proxy", "NO_PROXY", *(name for name in environ if name == "no_grpc_proxy"))
    return {name: ",".join(filter(None, (environ.get(name, ""), *hosts))) for name in names}


# Variables that are true on one host, or for one process, only. Those of the master host must not reach a
# task elsewhere, which has its own; from sge_job(5) environment and what sites set beside it.
_HOST_BOUND = frozenset((
    "ARC", "CUDA_VISIBLE_DEVICES", "DBUS_SESSION_BUS_ADDRESS", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES",
    "HOST", "HOSTNAME", "NHOSTS", "NQUEUES", "NSLOTS", "NVIDIA_VISIBLE_DEVICES", "OLDPWD",
    "PE_HOSTFILE", "PWD", "QUEUE", "ROCR_VISIBLE_DEVICES", "SGE_ARCH", "SGE_BINARY_PATH", "SGE_JOB_SPOOL_DIR",
    "SGE_PE_TASK_ID", "SGE_STDERR_PATH", "SGE_STDIN_PATH", "SGE_STDOUT_PATH", "SHLVL", "TEMP", "TMP",
    "TMPDIR", "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "_"))
_HOST_BOUND_PREFIXES = ("QRSH_", "SGE_BINDING", "SGE_HGR_", "SGE_SGR_", "SSH_")


def is_host_bound(name: str) -> bool:
    """Whether an environment variable must stay on its host: a task keeps its own agent's value of it."""
    return name in _HOST_BOUND or name.startswith(_HOST_BOUND_PREFIXES)


def plan_json(job_id: str, plan: Plan, options: Options) -> dict[str, Any]:
    """What is known of a job before it starts, in the form of cluster.json; the rest is null."""
    next_port: dict[str, int] = {}
    rows = []
    for task in plan.tasks:
        address = None
        if options.port is not None and options.interface is None:
            port = next_port.get(task.host, options.port)
            address, next_port[task.host] = f"{task.host}:{port}", port + 1
        rows.append(_row(Placement(task, address)) | {"gpus": None})
    return _job_json(job_id, rows)


def cluster_json(job_id: str, placements: Iterable[Placement]) -> dict[str, Any]:
    """The contents of cluster.json."""
    return _job_json(job_id, [_row(placement) for placement in placements])


def _row(placement: Placement) -> dict[str, Any]:
    task = placement.task
    return {"role": task.role, "index": task.index, "host": task.host, "address": placement.address,
            "slots": task.slots, "cores": None if placement.cores is None else list(placement.cores),
            "gpus": list(placement.gpus)}


def _job_json(job_id: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
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
