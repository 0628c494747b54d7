"""Jobs with one agent per host: their tasks are told apart as with one qrsh per task."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from gridengine import Cluster
from jobs import SCRIPTS, Folder, Job

PLAY = f"{SCRIPTS}/play.py"
JOBS = {
    "failures": ["--on-failure", "continue", PLAY, "worker:2=sys.exit(3)", "worker:3=crash(signal.SIGKILL)"],
    "restart": ["--restarts", "1", PLAY, "worker:2=times(1) or sys.exit(1)"],
    "pinned": ["--bind", "cores", PLAY],
}


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> Mapping[str, Job]:
    """Each has a ps and five workers, on two hosts."""
    folder = Folder(cluster, "per-host")
    hosts = ["-q", "all.q@node1,all.q@node2"]
    submitted = {
        name: folder.submit("--per-host", *words, slots=6, qsub=hosts) for name, words in JOBS.items()
    }
    return {name: job.wait() for name, job in submitted.items()}


def exits(job: Job) -> dict[str, str]:
    tasks = job.json("summary.json")["tasks"]
    return {f"{task['role']}:{task['index']}": task["exit"] for task in tasks}


def test_grid_engine_starts_one_task_on_each_host_but_the_master_host(jobs: Mapping[str, Job]) -> None:
    for job in jobs.values():
        *tasks, script = job.records
        assert [task["hostname"] for task in tasks] == [
            {"node1": "node2", "node2": "node1"}[script["hostname"]]
        ]


def test_tasks_that_fail_are_told_apart_from_their_neighbours(jobs: Mapping[str, Job]) -> None:
    job = jobs["failures"]
    assert job.status in (3, 137)  # of the first that failed
    expected = {"ps:0": "stopped", **{f"worker:{number}": "0" for number in range(5)}}
    assert exits(job) == {**expected, "worker:2": "3", "worker:3": "SIGKILL"}
    assert job.json("summary.json")["failure"]["task"] in ("worker:2", "worker:3")


def test_a_task_is_started_again_alone(jobs: Mapping[str, Job]) -> None:
    job = jobs["restart"]
    assert job.status == 0
    restarts = {task["index"]: task["restarts"] for task in job.json("summary.json")["tasks"][1:]}
    assert restarts == {0: 0, 1: 0, 2: 1, 3: 0, 4: 0}
    assert [len(job.lines(f"worker:{number}")) for number in range(5)] == [1, 1, 2, 1, 1]


def test_each_task_has_a_log_a_port_and_cores(jobs: Mapping[str, Job]) -> None:
    job = jobs["pinned"]
    tasks = job.json("cluster.json")["tasks"]
    assert len({task["address"] for task in tasks}) == 6
    assert all(task["cores"] for task in tasks)
    logs = [path.read_text() for path in job.traces.glob("logs/[pw]*.log")]
    assert logs == ["begins\n"] * 6
