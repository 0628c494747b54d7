"""What Grid Engine and users do to a running job: its tasks may save their state, then everything ends;
a suspended job goes on when it is resumed.

That nothing is left ten seconds after each test is checked in conftest.py.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from gridengine import MASTER, QUEUE, Cluster, Process, wait_until
from jobs import Folder, Job
from plays import have_begun, kill, on, play, processes, wait_for

Jobs = Mapping[str, Job]

# How each of the jobs is ended: the options of qsub and of tf_submit.py that it has.
ENDS: dict[str, tuple[list[str], list[str]]] = {
    "qdel": ([], []),
    "qdel-notify": (["-notify"], []),
    "SIGTERM": ([], []),
    "SIGINT": ([], ["--stop-signal", "INT"]),
    "SIGHUP": ([], ["--stop-signal", "USR1"]),
    "h_rt": (["-l", "h_rt=10"], []),
    "h_rt-notify": (["-notify", "-l", "h_rt=10"], []),
    "s_rt": (["-l", "s_rt=10"], []),
}
# Without -notify, Grid Engine kills all processes of a job at once; it is not sure to find all.
KILLED = ["qdel", "h_rt", "s_rt"]


@pytest.fixture(scope="module")
def ended(cluster: Cluster) -> Jobs:
    """A job for each of ENDS, side by side; its workers keep a checkpoint when they are told to end."""
    jobs = {
        name: play(
            Folder(cluster, f"end-{name}"), "worker=keep_checkpoint()", slots=3, qsub=qsub, options=options
        )
        for name, (qsub, options) in ENDS.items()
    }
    for name, job in jobs.items():
        wait_for(job, "| ready", 2)
        if name.startswith("SIG"):
            kill(job, "launcher", signal.Signals[name])
        if name.startswith("qdel"):
            cluster.root(MASTER, "qdel", job.id)
    return {name: job.wait(300) for name, job in jobs.items()}


def checkpoints(job: Job) -> list[str]:
    """Which signals the workers of a job got."""
    return sorted(path.read_text().strip() for path in job.folder.glob("checkpoint-worker-*"))


@pytest.mark.parametrize("name", [name for name in ENDS if name not in KILLED])
def test_workers_are_told_once_to_end_and_may_keep_a_checkpoint(ended: Jobs, name: str) -> None:
    told = {"SIGINT": "SIGINT", "SIGHUP": "SIGUSR1"}.get(name, "SIGTERM")
    assert checkpoints(ended[name]) == [told, told]


@pytest.mark.parametrize("name", KILLED)
def test_without_notify_those_workers_are_told_that_grid_engine_does_not_kill_at_once(
    ended: Jobs, name: str
) -> None:
    assert checkpoints(ended[name]) in ([], ["SIGTERM"], ["SIGTERM", "SIGTERM"])


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_is_the_failure_of_the_job(ended: Jobs, name: str) -> None:
    assert ended[name].status == 128 + signal.Signals[name]
    assert f"first failure: stopped by {name}" in ended[name].output


@pytest.mark.parametrize("name", ["qdel-notify", "h_rt-notify"])
def test_a_job_with_notify_says_why_it_ends(ended: Jobs, name: str) -> None:
    why = "stopped by SIGUSR2 (the job is being deleted, or its time is over)"
    assert ended[name].status == 128 + signal.SIGUSR2
    assert f"first failure: {why}" in ended[name].output


@pytest.mark.parametrize("name", ["qdel", "h_rt"])
def test_a_job_that_grid_engine_kills_ends_with_137(ended: Jobs, name: str) -> None:
    assert ended[name].status == 137


def test_a_job_at_its_soft_limit_fails(ended: Jobs) -> None:
    assert ended["s_rt"].status in (137, 128 + signal.SIGUSR1)


# ---- suspension

TICKS = "worker=[(print(i), time.sleep(0.5)) for i in range(24)]"
LOST_AFTER = 6.0  # seconds; the jobs are suspended for longer


@pytest.fixture
def short_notice(cluster: Cluster) -> Iterator[None]:
    """Jobs with -notify are suspended two seconds after the notice."""
    with cluster.changed("queue", QUEUE, notify="00:00:02"):
        yield


def is_stopped(process: Process) -> bool:
    return Path(f"/proc/{process.machine_pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def all_are_stopped(jobs: Jobs) -> bool:
    workers = [one for job in jobs.values() for one in processes(job, "--job_name worker")]
    return len(workers) == 2 * len(jobs) and all(map(is_stopped, workers))


@pytest.mark.usefixtures("short_notice")
def test_the_tasks_of_a_suspended_job_stop_and_go_on_with_it(cluster: Cluster) -> None:
    hosts = {"queue": on("node1", "node2")}  # the suspension of a queue stops all that is on its host
    jobs = {
        name: play(
            Folder(cluster, f"suspended-{name}"),
            TICKS,
            slots=3,
            options=["--lost-after", str(LOST_AFTER)],
            qsub=[*hosts.get(name, on("node3", "node4")), *(["-notify"] if name == "notify" else [])],
        )
        for name in ("job", "notify", "queue", "deleted")
    }
    for job in jobs.values():
        have_begun(job, 3)
    cluster.root(MASTER, "qmod", "-sj", *(jobs[name].id for name in ("job", "notify", "deleted")))
    cluster.root(MASTER, "qmod", "-sq", f"{QUEUE}@node1")
    wait_until(lambda: all_are_stopped(jobs), 12, "all tasks are stopped")
    time.sleep(LOST_AFTER)
    assert all_are_stopped(jobs)
    cluster.root(MASTER, "qmod", "-usj", jobs["job"].id, jobs["notify"].id)
    cluster.root(MASTER, "qmod", "-usq", f"{QUEUE}@node1")
    cluster.root(MASTER, "qdel", jobs["deleted"].id)
    for name in ("job", "notify", "queue"):
        assert jobs[name].wait().status == 0, jobs[name].output
        assert jobs[name].lines("worker:1") == ["begins", *map(str, range(24))]
    assert jobs["deleted"].wait().status == 137
