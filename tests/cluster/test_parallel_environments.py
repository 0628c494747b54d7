"""Jobs in parallel environments of other kinds than the one of pe/; sge_pe(5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from gridengine import MASTER, QUEUE, Cluster, edited
from jobs import TF_SUBMIT, Folder, Job
from plays import PLAY, on, play, submit_script

# The attributes that differ, for each environment.
KINDS = {
    "first": {"job_is_first_task": "TRUE"},
    "uncontrolled": {"control_slaves": "FALSE"},
    "summary": {"accounting_summary": "TRUE"},
    "packed": {"allocation_rule": "$fill_up"},
}

# Attributes that this Grid Engine does not have: here only `qconf -sp` says that they are set.
FOREIGN = ("master_forks_slaves", "daemon_forks_slaves")
FAKE_QCONF = """\
#!/bin/sh
/usr/lib/gridengine/qconf "$@"
echo {attribute} TRUE
"""
SCRIPT = f"SGE_BINARY_PATH=$PWD exec python3 {TF_SUBMIT} {PLAY}\n"


def play_foreign(folder: Folder, attribute: str) -> Job:
    """A job with two slots on each of three hosts, in an environment with such an attribute."""
    folder.write("qconf", FAKE_QCONF.format(attribute=attribute))
    (folder.cluster.home() / folder.name / "qrsh").symlink_to("/usr/lib/gridengine/qrsh")
    return submit_script(folder, SCRIPT, slots=6, qsub=on("node1", "node2", "node3"))


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> Iterator[Mapping[str, Job]]:
    """Jobs "KIND" on hosts 1 to 3 with two slots on each, and "KIND-alone" with three on node4."""
    tensorflow = cluster.root(MASTER, "qconf", "-sp", "tensorflow")
    for name, attributes in KINDS.items():
        cluster.qconf("-Ap", edited(tensorflow, {"pe_name": name, **attributes}))
        cluster.root(MASTER, "qconf", "-aattr", "queue", "pe_list", name, QUEUE)
    several = {
        name: play(Folder(cluster, name), slots=6, pe=name, qsub=on("node1", "node2", "node3"))
        for name in KINDS
    }
    alone = {
        f"{name}-alone": play(Folder(cluster, f"{name}-alone"), slots=3, pe=name, qsub=on("node4"))
        for name in KINDS
    }
    foreign = {attribute: play_foreign(Folder(cluster, attribute), attribute) for attribute in FOREIGN}
    yield {name: job.wait() for name, job in (several | alone | foreign).items()}
    for name in KINDS:
        cluster.root(MASTER, "qconf", "-dattr", "queue", "pe_list", name, QUEUE)
        cluster.root(MASTER, "qconf", "-dp", name)


def tasks_that_ran(job: Job) -> int:
    """How many tasks their agents reported."""
    return sum(task["exit"] in ("0", "stopped") for task in job.json("summary.json")["tasks"])


@pytest.mark.parametrize(
    "name", ["first", "summary", "packed", "first-alone", "uncontrolled-alone", "summary-alone"]
)
def test_a_task_runs_on_every_slot(jobs: Mapping[str, Job], name: str) -> None:
    assert jobs[name].status == 0, jobs[name].output
    assert tasks_that_ran(jobs[name]) == (3 if "alone" in name else 6)


@pytest.mark.parametrize("name", ["first", "first-alone"])
def test_where_the_job_script_is_the_first_task_one_task_runs_beside_it(
    jobs: Mapping[str, Job], name: str
) -> None:
    *tasks, script = jobs[name].records
    slots = 3 if "alone" in name else 6
    assert len(tasks) == slots - 1


def test_without_control_of_slaves_a_job_on_several_hosts_is_an_error_that_says_what_to_do(
    jobs: Mapping[str, Job],
) -> None:
    job = jobs["uncontrolled"]
    assert job.status == 2
    assert "the parallel environment uncontrolled has control_slaves FALSE" in job.output
    assert "set control_slaves TRUE (qconf -mp uncontrolled)" in job.output


def test_accounting_summary_gives_one_record(jobs: Mapping[str, Job]) -> None:
    assert len(jobs["summary"].records) == 1


@pytest.mark.parametrize(("attribute", "started"), [("master_forks_slaves", 4), ("daemon_forks_slaves", 3)])
def test_where_slaves_are_forked_grid_engine_starts_fewer_tasks(
    jobs: Mapping[str, Job], attribute: str, started: int
) -> None:
    """None on the master host, or one on each host."""
    *tasks, _script = jobs[attribute].records
    assert jobs[attribute].status == 0, jobs[attribute].output
    assert tasks_that_ran(jobs[attribute]) == 6
    assert len(tasks) == started


@pytest.fixture
def second_queue(cluster: Cluster) -> Iterator[str]:
    """A queue with two slots on node2, beside the eight that it has there."""
    queue = {"qname": "second.q", "hostlist": "node2", "slots": "2"}
    cluster.qconf("-Aq", edited(cluster.root(MASTER, "qconf", "-sq", QUEUE), queue))
    yield queue["qname"]
    cluster.root(MASTER, "qconf", "-dq", queue["qname"])


def test_a_host_with_two_queue_instances_has_a_task_on_every_slot(folder: Folder, second_queue: str) -> None:
    """Its execution daemon takes nine tasks at most."""
    queues = f"{QUEUE}@node1,{QUEUE}@node2,{second_queue}@node2"
    job = play(folder, slots=18, qsub=["-q", queues, "-masterq", f"{QUEUE}@node1"]).wait()
    assert job.status == 0, job.output
    assert tasks_that_ran(job) == 18
