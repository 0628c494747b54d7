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


# ============================================================================ launcher
# ruff: noqa: E402 - only the launcher pays for these imports
import argparse
import collections
import re
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
