"""Tasks and the cores of their hosts: with all its processes and threads each is where its placement says."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gridengine import Cluster, Process, wait_until
from jobs import SCRIPTS, Folder, Job, environment

from tf_submit import parse_ranges, topology

CPUS = tuple(sorted(os.sched_getaffinity(0)))  # the daemons of the cluster may use the same
CORES = {core for cpu, _, core, _ in topology() if cpu in CPUS}
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="the two tasks of a host have to share one core")

# Options of qsub and of tf_submit.py. Jobs of one round run at the same time, and on different hosts, for
# the cores that Grid Engine has given to one job are none that it can give to the next.
NODES_1_2 = ["-q", "all.q@node1,all.q@node2"]
ROUNDS: list[dict[str, tuple[int, list[str], list[str]]]] = [
    {
        "set": (4, [*NODES_1_2, "-binding", "linear:1"], []),
        "set, per host": (2, ["-q", "all.q@node3", "-binding", "linear:slots"], ["--per-host"]),
        "set, ignored": (2, ["-q", "all.q@node4", "-binding", "linear:1"], ["--bind", "none"]),
    },
    {
        "pe": (4, [*NODES_1_2, "-binding", "pe", "linear:2"], []),
        "env": (2, ["-q", "all.q@node3", "-binding", "env", "linear:1"], []),
        "none": (2, ["-q", "all.q@node4"], []),
        "none, asked for": (2, ["-q", "all.q@node4"], ["--bind", "cores", "--membind"]),
    },
]
PINNED = ["set", "set, per host", "pe", "env", "none, asked for"]


@dataclass
class Seen:
    """A task as /proc had it while it ran, and as its job's cluster.json and table of tasks have it."""

    masks: list[tuple[int, ...]]  # one for each thread of each process
    policies: set[str]  # of its processes' memory: "default", "bind:0"
    granted: tuple[int, ...]  # SGE_BINDING
    placement: dict[str, Any]
    line: str

    @property
    def cores(self) -> tuple[int, ...]:
        return tuple(self.placement["cores"])


def masks(process: Process) -> list[tuple[int, ...]]:
    """The CPUs that each thread of a process may use; proc_pid_status(5)."""
    threads = Path(f"/proc/{process.machine_pid}/task").iterdir()
    lines = itertools.chain.from_iterable((thread / "status").read_text().splitlines() for thread in threads)
    return [tuple(parse_ranges(line.split()[1])) for line in lines if line.startswith("Cpus_allowed_list:")]


def policy(process: Process) -> str:
    """The memory policy of a process; numa(7). A kernel without NUMA has none."""
    file = Path(f"/proc/{process.machine_pid}/numa_maps")
    return file.read_text().split()[1] if file.exists() else ""


def look_at(job: Job) -> dict[str, Seen]:
    """The tasks of a running job, by name."""
    processes = job.processes()
    placements = {f"{task['role']}:{task['index']}": task for task in job.json("cluster.json")["tasks"]}
    lines = {line.split()[0]: line for line in job.lines() if ":" in line.split()[0]}
    assert processes.keys() == placements.keys()
    return {
        name: Seen(
            [mask for process in processes[name] for mask in masks(process)],
            {policy(process) for process in processes[name]},
            tuple(map(int, environment(processes[name][0]).get("SGE_BINDING", "").split())),
            placements[name],
            lines[name],
        )
        for name in placements
    }


def count_ready(jobs: Iterable[Job]) -> int:
    return sum(job.output.count("| ready\n") for job in jobs)


def run(folder: Folder, round_: dict[str, tuple[int, list[str], list[str]]]) -> dict[str, dict[str, Seen]]:
    """Jobs that run at the same time, and what was seen of their tasks."""
    jobs = {
        name: folder.submit(*options, f"{SCRIPTS}/family.py", slots=slots, qsub=qsub)
        for name, (slots, qsub, options) in round_.items()
    }
    tasks = sum(slots for slots, *_ in round_.values())
    wait_until(lambda: count_ready(jobs.values()) == tasks, 60, "all tasks run")
    seen = {name: look_at(job) for name, job in jobs.items()}
    folder.write("end", "")
    assert {job.wait().status for job in jobs.values()} == {0}
    return seen


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> dict[str, dict[str, Seen]]:
    """What was seen of the tasks of each job."""
    seen = {}
    for number, round_ in enumerate(ROUNDS):
        seen.update(run(Folder(cluster, f"binding-{number}"), round_))
    return seen


@pytest.mark.parametrize("name", PINNED)
def test_all_processes_and_threads_of_a_task_are_on_the_cores_of_its_placement(jobs, name):
    for task in jobs[name].values():
        assert task.masks == [task.cores] * 4
        assert f" {','.join(map(str, task.cores))} (socket" in task.line


@needs_two_cores
@pytest.mark.parametrize("name", PINNED)
def test_tasks_of_one_host_have_no_core_in_common(jobs, name):
    held = [(task.placement["host"], cpu) for task in jobs[name].values() for cpu in task.cores]
    assert len(held) == len(set(held))


@needs_two_cores
@pytest.mark.parametrize("name", ["set", "env"])
def test_a_task_that_grid_engine_gave_cores_is_on_them(jobs, name):
    """On a host of two cores it has none for the last task, since the waiting job script has one."""
    given = [task for task in jobs[name].values() if task.granted]
    assert given and [task.cores for task in given] == [task.granted for task in given]


def test_tasks_are_not_pinned_where_nobody_asks_for_cores(jobs):
    for task in jobs["none"].values():
        assert task.placement["cores"] is None and "not pinned" in task.line
        assert task.masks == [CPUS] * 4


def test_with_bind_none_tasks_keep_the_masks_that_grid_engine_gave_them(jobs):
    for task in jobs["set, ignored"].values():
        assert task.placement["cores"] is None and "not pinned" in task.line
        assert task.masks == [task.granted or CPUS] * 4


def test_memory_is_bound_to_the_numa_nodes_of_the_cores_where_asked(jobs):
    nodes = {cpu: node for cpu, _, _, node in topology()}
    for task in jobs["none, asked for"].values():
        (policy,) = task.policies
        kind, _, bound = policy.partition(":")
        assert not policy or (kind, parse_ranges(bound)) == (
            "bind",
            sorted({nodes[cpu] for cpu in task.cores}),
        )
    assert {policy for task in jobs["none"].values() for policy in task.policies} <= {"default", ""}
