"""`tf_submit.py --check` on a real Grid Engine: a healthy cluster, and faults that are really there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from gridengine import Cluster, wait_until
from jobs import TF_SUBMIT, Folder, Job

# A stand-in for TensorFlow, whose import takes seconds. node3 has another version.
TENSORFLOW = """\
import socket
class config:
    list_physical_devices = lambda kind: []
__version__ = "1.2.0" if socket.gethostname() == "node3" else "1.3.0"
"""


def on(hosts: int) -> list[str]:
    """Options of qsub for the first hosts of the cluster; the job script runs on node1."""
    return ["-q", ",".join(f"all.q@node{number + 1}" for number in range(hosts)), "-masterq", "all.q@node1"]


def check(folder: Folder, *options: str, hosts: int = 2, script: str = TF_SUBMIT) -> Job:
    """Check so many hosts, with the stand-in for TensorFlow."""
    folder.write("tensorflow.py", TENSORFLOW)
    qsub = [*on(hosts), "-v", f"PYTHONPATH={folder.path}"]
    return folder.submit("--check", *options, slots=hosts, qsub=qsub, script=script)


def table(job: Job) -> dict[str, dict[str, str]]:
    """The cells of each host's line, by column."""
    lines = [re.split(" {2,}", line) for line in job.lines() if re.match(r"(host|node\d) ", line)]
    return {cells[0]: dict(zip(lines[0], cells)) for cells in lines[1:]}


def results(job: Job) -> dict[str, str]:
    """The last cell of each host's line."""
    return {host: cells["result"] for host, cells in table(job).items()}


def faults(job: Job) -> list[str]:
    """The lines about faults, sorted; what to do about one is indented.

    Grid Engine grants hosts in any order, and so they are named: here sorted, too.
    """
    lines = [line.removeprefix("error: ") for line in job.lines() if line.startswith("error: ")]
    return sorted(re.sub(r"node\d(, node\d)+", lambda found: sort_names(found[0]), line) for line in lines)


def sort_names(text: str) -> str:
    return ", ".join(sorted(text.split(", ")))


def test_a_healthy_cluster(folder: Folder) -> None:
    job = folder.submit("--check", slots=4, qsub=[*on(2), "-binding", "linear:1"]).wait()
    assert (job.status, faults(job)) == (0, []), job.output
    assert results(job) == {"node1": "ok", "node2": "ok"}
    for host, cells in table(job).items():
        assert cells["slots"] == "2"
        assert re.fullmatch(r"3\.\d+\.\d+", cells["Python"])
        assert re.fullmatch(r"\d+\.\d+\.\d+", cells["psutil"])
        assert re.match(r"2\.\d+\.\d+", cells["TensorFlow"])
        assert re.fullmatch(rf"{host}:\d+", cells["address"])
        assert re.fullmatch(r"\d+ of \d+", cells["CPUs"]), "bound to one core"
        assert re.fullmatch(r"0 of \d+", cells["GPUs"])
    assert job.lines()[-1] == "0 faults found"
    assert not list(job.folder.glob("*.tf*")), "a check leaves nothing but its output"


@pytest.fixture
def broken(cluster: Cluster) -> Iterator[None]:
    """node2 does not know node4's name; node2 and node3 cannot reach each other; node4's eth1 is down."""
    known = cluster.root("node2", "grep", "-v", "node4", "/etc/hosts")
    etc_hosts = cluster.write("hosts-of-node2", known)
    cluster.root("node2", "mount", "--bind", etc_hosts, "/etc/hosts")
    cluster.root("node2", "ip", "route", "add", "unreachable", "10.77.1.13")
    cluster.root("node3", "ip", "route", "add", "unreachable", "10.77.1.12")
    cluster.link("node4", up=False, network="eth1")
    yield
    cluster.link("node4", up=True, network="eth1")
    cluster.root("node3", "ip", "route", "del", "unreachable", "10.77.1.12")
    cluster.root("node2", "ip", "route", "del", "unreachable", "10.77.1.13")
    cluster.root("node2", "umount", "/etc/hosts")


@pytest.mark.usefixtures("broken")
def test_all_faults_of_all_hosts_in_one_run(folder: Folder) -> None:
    job = check(folder, "--interface", "eth1", hosts=4).wait()
    assert job.status == 1
    assert [line for line in faults(job) if not line.startswith(" ")] == [
        "node2: does not reach node3 and is not reached from node3: No route to host",
        "node2: does not resolve node4: Name or service not known",
        "node3: TensorFlow 1.2.0, but 1.3.0 on node1, node2, node4",
        "node4: does not reach node1, node2, node3: No route to host",
        "node4: no interface eth1 here; there are: lo (127.0.0.1, ::1), eth0 (10.77.0.14)",
    ]
    assert results(job) == {"node1": "ok", "node2": "2 faults", "node3": "1 fault", "node4": "2 faults"}
    for cure in ("    every host needs the names", "    open TCP ports", "    install the same version"):
        assert any(line.startswith(cure) for line in faults(job))


def test_python_without_psutil_and_tensorflow(folder: Folder) -> None:
    folder.cluster.run("node1", f"python3 -m venv --without-pip {folder.path}/venv")
    python = f"{folder.path}/venv/bin/python3"
    job = folder.submit("--check", "--python", python, qsub=on(2)).wait()
    assert job.status == 1
    assert faults(job) == [
        "    install TensorFlow for this Python on that host, or name another Python with --python PATH",
        "node1, node2: TensorFlow cannot be imported: ModuleNotFoundError: No module named 'tensorflow'",
        f"node1, node2: no module psutil here; install psutil for {python}, or name another Python "
        "with --python PATH",
    ]
    assert results(job) == {"node1": "2 faults", "node2": "2 faults"}


def test_hosts_where_nothing_starts(cluster: Cluster, folder: Folder) -> None:
    """node2 does not have that Python, node3 loses its network before anything is started there."""
    python = folder.write("python", '#!/bin/sh\nexec /srv/venv/bin/python3 "$@"\n')
    for node in ("node1", "node3"):
        cluster.run(node, f"cp {python} /tmp/python")
    late = f'#!/bin/sh\ntouch started\nwhile [ ! -e go ]; do sleep 0.1; done\nexec {TF_SUBMIT} "$@"\n'
    options = ["--python", "/tmp/python", "--start-timeout", "5"]
    job = check(folder, *options, hosts=3, script=folder.write("late.sh", late))
    wait_until((job.folder / "started").exists, 60, "the job runs")
    cluster.link("node3", up=False)
    folder.write("go", "")
    wait_until(lambda: "faults found" in job.output, 60, "the check is done")
    cluster.link("node3", up=True)
    assert job.wait().status == 1
    assert results(job) == {"node1": "ok", "node2": "1 fault", "node3": "1 fault"}
    told = faults(job)
    assert "node2: /tmp/python cannot be run on this host; see --python" in told
    assert "    bash: line 1: /tmp/python: No such file or directory" in told
    assert "node3: no answer within 5 s" in told


def test_a_parallel_environment_that_starts_no_tasks(cluster: Cluster, folder: Folder) -> None:
    with cluster.changed("pe", "tensorflow", control_slaves="FALSE"):
        job = check(folder).wait()
    assert job.status == 1
    [fault] = faults(job)
    assert "has control_slaves FALSE, so Grid Engine starts no tasks on node2" in fault
    assert results(job) == {"node1": "ok", "node2": "not checked"}


def test_the_check_by_qrsh(cluster: Cluster, folder: Folder) -> None:
    folder.write("tensorflow.py", TENSORFLOW)
    words = ["qrsh", "-now", "no", "-pe", "tensorflow", "2", *on(2), "-v", f"PYTHONPATH={folder.path}"]
    done = cluster.run("node1", [*words, TF_SUBMIT, "--check"], cwd=folder.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "tf_submit | 0 faults found"
