"""Ports and networks on a real Grid Engine: no two jobs in each other's way, traffic where it should be."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from gridengine import Cluster, wait_until
from jobs import SCRIPTS, Folder, Job

PEERS = f"{SCRIPTS}/peers.py"
JOBS = int(
    os.environ.get("CLUSTER_JOBS", "12")
)  # that run side by side; the hosts have room for eight at a time

# One task each on node1, where the job script runs, node2 and node3.
THREE_HOSTS = ["-q", "all.q@node1,all.q@node2,all.q@node3", "-masterq", "all.q@node1"]


def test_jobs_that_share_hosts_and_base_port_all_find_their_own_tasks(folder: Folder) -> None:
    jobs = [folder.submit("-p", "2222", PEERS, "1000", "60", slots=4) for _ in range(JOBS)]
    for job in jobs:
        job.wait(60 + 10 * JOBS)
        assert job.status == 0, job.output
        assert {record["exit_status"] for record in job.records} == {"0"}
        assert [job.lines(f"worker:{index}") for index in range(3)] == [["reached 3 tasks"]] * 3
    shared = [task["address"] for job in jobs for task in job.json("cluster.json")["tasks"]]
    assert len(set(shared)) > 8, "some jobs ran at the same time on the same host"


@pytest.fixture
def eth0_blocked(cluster: Cluster) -> Iterator[None]:
    """node2 and node3 cannot reach each other over the first network."""
    pair = ("node2", "node3")
    addresses = {node: cluster.run(node, "hostname --ip-address").stdout.strip() for node in pair}
    for node, other in (pair, pair[::-1]):
        cluster.root(node, "ip", "route", "add", "unreachable", addresses[other])
    yield
    for node, other in (pair, pair[::-1]):
        cluster.root(node, "ip", "route", "del", "unreachable", addresses[other])


@pytest.mark.usefixtures("eth0_blocked")
def test_traffic_takes_the_network_that_is_asked_for(folder: Folder) -> None:
    def submit(*options: str) -> Job:
        return folder.submit(*options, PEERS, "1000000", "5", slots=3, qsub=THREE_HOSTS)

    by_name, by_subnet = submit("--interface", "eth1"), submit("--interface", "10.77.1.0/24")
    by_default = submit()
    for job in (by_name, by_subnet):
        assert job.wait().status == 0, job.output
        assert all(task["address"].startswith("10.77.1.") for task in job.json("cluster.json")["tasks"])
    assert by_default.wait().status == 1
    assert "cannot be reached" in by_default.output


@pytest.mark.usefixtures("eth0_blocked")
def test_a_mirrored_strategy_trains_over_the_network_that_is_asked_for(folder: Folder) -> None:
    words = ["--ps", "0", "--interface", "eth1", "--tf-config-only", f"{SCRIPTS}/mirrored.py"]
    job = folder.submit(*words, slots=3, qsub=THREE_HOSTS).wait()
    assert job.status == 0, job.output
    for index in range(3):
        assert job.lines(f"worker:{index}")[-1] == "learned 3.0 on 3 workers"


@pytest.fixture
def without_eth1(cluster: Cluster) -> Iterator[str]:
    """A host whose second network is down."""
    cluster.root("node3", "ip", "link", "set", "eth1", "down")
    yield "node3"
    cluster.root("node3", "ip", "link", "set", "eth1", "up")


def test_a_host_without_the_interface_is_named_with_those_it_has(folder: Folder, without_eth1: str) -> None:
    job = folder.submit("--interface", "eth1", PEERS, "1", "5", slots=3, qsub=THREE_HOSTS).wait()
    assert job.status == 1
    [error] = [line for line in job.lines() if line.startswith("error:")]
    assert f"cannot run on {without_eth1}: no interface eth1 here; there are:" in error
    assert "eth0 (10.77.0.13)" in error


def test_tensorboard_is_seen_from_other_hosts_as_long_as_the_job_runs(
    cluster: Cluster, folder: Folder
) -> None:
    words = [
        "--tensorboard",
        "--interface",
        "eth1",
        "--",
        "sh",
        "-c",
        "until [ -e seen ]; do sleep 0.2; done",
    ]
    job = folder.submit(*words, qsub=THREE_HOSTS)
    page = "import sys, urllib.request as web; print(web.urlopen(sys.argv[1]).read(99))"

    def looked(node: str) -> bool:
        urls = re.findall(r"TensorBoard: (http://10\.77\.1\.\S+)", job.output)
        return bool(urls) and "<!doctype html>" in cluster.run(node, ["python3", "-c", page, *urls]).stdout

    wait_until(lambda: looked("node4"), 60, "TensorBoard serves its page")
    folder.write("seen", "")
    assert job.wait().status == 0, job.output
    assert not looked("node4")
