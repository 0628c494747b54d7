"""The environment of tasks: the user's variables reach all of them, those of a host stay on it."""

from __future__ import annotations

import json
import os
import shlex

import pytest
from gridengine import Cluster
from jobs import SCRIPTS, TF_SUBMIT, Folder, Job

from tf_submit import topology

SHOW = f"{SCRIPTS}/show.py"
OF_THE_MASTER = {
    "CUDA_VISIBLE_DEVICES": "7",
    "SGE_HGR_gpu": "gpu7",
    "SGE_BINDING": "0",
    "SGE_BINDING_CPUSET": "0x1",
    "SGE_BINDING_TOPOLOGY": "SCc",
    "TMPDIR": "/of/the/master",
    "HOSTNAME": "of-the-master",
}
EXPORTED = {
    "MINE": 'two\nlines with "quotes", $HOME and größer',
    "EMPTY": "",
    "LD_LIBRARY_PATH": "/of/mine",
    "PATH": f"/of/mine:{os.environ['PATH']}",
}
CORES = {core for cpu, _, core, _ in topology() if cpu in os.sched_getaffinity(0)}


def environments(job: Job) -> dict[str, dict[str, str]]:
    """Of the workers of a job of SHOW that has succeeded, by host."""
    assert job.wait().status == 0, job.output
    hosts = {task["index"]: task["host"] for task in job.json("cluster.json")["tasks"]}
    shown = {hosts[index]: job.lines(f"worker:{index}") for index in hosts}
    return {host: json.loads(line)["environment"] for host, (line,) in shown.items()}


def test_variables_of_the_job_reach_all_tasks_and_those_of_its_host_none_elsewhere(
    cluster: Cluster, folder: Folder
) -> None:
    exports = [f"export {name}={shlex.quote(text)}" for name, text in {**OF_THE_MASTER, **EXPORTED}.items()]
    command = f"exec /srv/venv/bin/python3 {TF_SUBMIT} --ps 0 {SHOW}"
    folder.write("job.sh", "\n".join(["#!/bin/sh", *exports, command]) + "\n")
    options = ["-pe", "tensorflow", "2", "-cwd", "-j", "y", "-q", "all.q@node1,all.q@node2"]
    job_id = cluster.qsub(
        *options, "-v", "FROM_QSUB=a  b", "-masterq", "all.q@node1", "job.sh", cwd=folder.path
    )
    found = environments(Job(cluster, job_id, cluster.home() / folder.name))
    for environment in found.values():
        assert EXPORTED.items() <= environment.items()
        assert environment["FROM_QSUB"] == "a  b"
    assert not OF_THE_MASTER.items() & found["node2"].items()
    assert found["node2"]["TMPDIR"].startswith(f"/tmp/{job_id}.")


@pytest.mark.skipif(len(CORES) < 2, reason="one core gives no more threads than none")
def test_threads_follow_the_cores_save_those_that_the_user_sets(folder: Folder) -> None:
    options = ["-binding", "linear:2", "-v", "OMP_NUM_THREADS=3"]
    [environment] = environments(folder.submit("--ps", "0", SHOW, slots=1, qsub=options)).values()
    assert environment["TF_NUM_INTRAOP_THREADS"] == "2"
    assert environment["OMP_NUM_THREADS"] == "3"
