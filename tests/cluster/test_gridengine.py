"""The test cluster itself: what the other tests of this folder rely on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import gridengine
import pytest
from gridengine import MASTER, Cluster, ClusterError, Process, wait_until

NAME = f"second-{os.getpid()}"
EXECD_PORT = 6445  # every node listens on it, on all its addresses

ON_EVERY_HOST = """\
for host in $(cut -d' ' -f1 $PE_HOSTFILE); do
    qrsh -inherit $host 'echo task on $(hostname); exit 3'
done
"""
SERVER = (
    "import socket, time; s = socket.create_server(('', 5000)); print('ready', flush=True); time.sleep(600)"
)


def reaches(cluster: Cluster, host: str, target: str) -> bool:
    """Whether a host gets a connection to another one, named or by address, within a second."""
    connect = f"import socket; socket.create_connection(('{target}', {EXECD_PORT}), 1)"
    return cluster.run(host, ["python3", "-c", connect]).returncode == 0


def traces() -> list[str]:
    """What a cluster could leave on the machine, its processes and state folder apart."""
    namespaces = subprocess.run(["ip", "netns", "list"], text=True, capture_output=True, check=True).stdout
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    its_mounts = [mount for mount in mounts if "gridengine" in mount or " /srv" in mount]
    files = [Path(file).read_text() for file in ("/etc/passwd", "/etc/group", "/etc/hosts")]
    return [*sorted(os.listdir("/sys/class/net")), namespaces, *its_mounts, *files]


def all_processes(cluster: Cluster) -> list[Process]:
    return [process for host in cluster.hosts for process in cluster.processes(host, user=None)]


def have_ended(processes: list[Process]) -> bool:
    return not any(Path(f"/proc/{process.machine_pid}").exists() for process in processes)


def test_a_job_starts_a_task_on_every_host_and_accounts_for_each(cluster: Cluster) -> None:
    script = cluster.write("every-host/job.sh", ON_EVERY_HOST)
    job = cluster.qsub("-pe", "tensorflow", "4", "-cwd", script, cwd="/home/tfuser/every-host")
    *tasks, whole = cluster.wait(job)
    assert sorted(cluster.output(job).splitlines()) == [f"task on {node}" for node in cluster.nodes]
    assert sorted(task["hostname"] for task in tasks) == cluster.nodes
    assert {task["exit_status"] for task in tasks} == {"3"}
    assert whole["jobname"] == "job.sh"
    assert whole["exit_status"] == "3"


def test_a_deleted_job_has_no_record_if_it_never_ran(cluster: Cluster) -> None:
    job = cluster.qsub("-h", "-b", "y", "hostname")
    cluster.run("node2", ["qdel", job])
    assert cluster.wait(job) == []


def test_each_host_is_a_machine_of_its_own(cluster: Cluster) -> None:
    names = cluster.run("node2", "hostname; cat /etc/hostname; hostname --ip-address")
    assert names.stdout.split() == ["node2", "node2", "10.77.0.12"]
    assert min(process.pid for process in cluster.processes("node2", user=None)) == 1
    cluster.run("node1", "touch /tmp/of-node1 /dev/shm/of-node1 ~/of-all")
    assert cluster.run("node2", "ls -d ~/of-* /tmp/of-* /dev/shm/of-*").stdout == "/home/tfuser/of-all\n"


def test_the_machine_is_read_only_for_root_too(cluster: Cluster) -> None:
    for folder in ("/usr", "/srv/tf_submit", "/srv/venv"):
        refused = cluster.run("node1", ["touch", f"{folder}/file"], user="root")
        assert "Read-only file system" in refused.stderr
    cluster.root("node1", "touch", "/etc/of-the-cluster")
    assert not Path("/etc/of-the-cluster").exists()


def test_jobs_and_tasks_and_shells_find_the_same_python(cluster: Cluster) -> None:
    line = "command -v python3"
    script = cluster.write("python.sh", f"{line}; qrsh -inherit $(hostname) '{line}'")
    job = cluster.qsub("-pe", "tensorflow", "1", script)
    cluster.wait(job)
    assert cluster.output(job).split() == ["/srv/venv/bin/python3"] * 2
    assert cluster.run("node1", line).stdout.strip() == "/srv/venv/bin/python3"


def test_the_checkout_is_there_to_read(cluster: Cluster) -> None:
    shown = cluster.run("node1", ["cat", "/srv/tf_submit/tests/cluster/gridengine.py"])
    assert shown.stdout == Path(gridengine.__file__).read_text()


def test_a_pulled_cable_cuts_one_network_only(cluster: Cluster) -> None:
    assert reaches(cluster, "node1", "node2")
    cluster.link("node2", up=False)
    try:
        assert not reaches(cluster, "node1", "node2")
        assert not reaches(cluster, "node2", "node1")
        assert reaches(cluster, "node1", "10.77.1.12")
    finally:
        cluster.link("node2", up=True)
    wait_until(lambda: reaches(cluster, "node1", "node2"), 10, "node2 is back")


def test_a_host_can_be_powered_off_and_on(cluster: Cluster) -> None:
    cluster.power_off("node4")
    try:
        assert not cluster.is_on("node4")
        assert not reaches(cluster, "node1", "node4")
    finally:
        cluster.power_on("node4")
    job = cluster.qsub("-l", "hostname=node4", "-b", "y", "hostname")
    cluster.wait(job)
    assert cluster.output(job) == "node4\n"


def test_a_changed_attribute_is_restored(cluster: Cluster) -> None:
    before = cluster.root(MASTER, "qconf", "-sq", "all.q")
    with cluster.changed("queue", "all.q", shell="/bin/csh", shell_start_mode="unix_behavior"):
        assert "unix_behavior" in cluster.root(MASTER, "qconf", "-sq", "all.q")
    assert cluster.root(MASTER, "qconf", "-sq", "all.q") == before


def test_leftovers_are_seen_and_cleared(cluster: Cluster) -> None:
    job = cluster.qsub("-h", "-b", "y", "hostname")
    server = subprocess.Popen(cluster.argv("node3", ["python3", "-c", SERVER]), stdout=subprocess.PIPE)
    with server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        waiting, process, port = cluster.leftovers()
        cluster.clear()
    assert waiting.split()[0] == job
    assert process.startswith("node3: ")
    assert "create_server" in process
    assert port == "node3: port 5000 of tfuser"
    assert cluster.leftovers() == []


def test_a_timeout_ends_the_command_on_the_host(cluster: Cluster) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.run("node1", ["sleep", "600"], timeout=0.5)
    wait_until(lambda: not cluster.processes("node1"), 5, "sleep has ended")


def test_clusters_neither_see_each_other_nor_leave_a_trace(cluster: Cluster) -> None:
    before = traces()
    with Cluster(NAME, hosts=1, venv=cluster.venv, bare=True) as other:
        assert traces() == before
        assert other.root(MASTER, "qconf", "-sel").split() == ["node1"]
        assert other.run(MASTER, "qconf -spl").stdout == ""
        assert cluster.root(MASTER, "qconf", "-sel").split() == cluster.nodes
        its_processes = all_processes(other)
        assert {"sge_qmaster", "sge_execd"} <= {Path(process.command).name for process in its_processes}
    assert have_ended(its_processes)
    assert traces() == before
    assert not other.state.exists()


def test_a_cluster_dies_with_its_program(cluster: Cluster) -> None:
    other = Cluster(NAME, hosts=1, venv=cluster.venv)
    program = (
        f"from gridengine import *; Cluster({NAME!r}, 1, venv=Path({str(cluster.venv)!r})).up(); input(1)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        with owner:
            assert owner.stdout is not None
            assert owner.stdout.read(1) == b"1"
            its_processes = all_processes(other)
            owner.send_signal(signal.SIGKILL)
        wait_until(lambda: have_ended(its_processes), 10, "all its processes have ended")
    finally:
        other.down()


def test_a_python_that_users_cannot_run_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.touch(mode=0o700)
    refused = Cluster(NAME, hosts=1, venv=tmp_path)
    with pytest.raises(ClusterError, match=f"ordinary users can't run {tmp_path}/bin/python3"):
        refused.up()
    assert not refused.state.exists()


def test_a_second_cluster_of_the_same_name_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="there is a cluster .* already"):
        Cluster(cluster.name, venv=cluster.venv).up()
    assert all(cluster.is_on(host) for host in cluster.hosts)


def test_by_hand(cluster: Cluster) -> None:
    tool = [sys.executable, str(Path(__file__).with_name("gridengine.py"))]
    line = "id -un; exit 7"
    done = subprocess.run(
        [*tool, "run", "--name", cluster.name, "--user", "tfother", "node2", line], capture_output=True
    )
    assert (done.stdout, done.returncode) == (b"tfother\n", 7)
    missing = subprocess.run([*tool, "down", "--name", "nowhere"], text=True, capture_output=True)
    assert missing.returncode == 1
    assert "there is no cluster nowhere" in missing.stderr
