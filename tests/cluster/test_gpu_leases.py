"""GPUs on hosts whose scheduler gives no ids, as Son of Grid Engine, and ids that others give.

The GPUs are device files with nothing behind them; tasks see them in CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from gridengine import Cluster, wait_until
from jobs import SCRIPTS, TF_SUBMIT, Folder, Job, environment

from tf_submit import LEASES

FIXTURES = Path(__file__).parent.parent / "fixtures"
SHOW = ["--ps", "0", "--tf-config-only", "printenv", "CUDA_VISIBLE_DEVICES"]  # the script: a command

# What nvidia-ml-py finds on a host whose first GPU somebody uses without a lease.
NVML = """
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return f"GPU {index}"
def nvmlDeviceGetComputeRunningProcesses(device): return ["a process"] if device == "GPU 0" else []
"""

PROLOG = """\
#!/bin/sh
echo CUDA_VISIBLE_DEVICES=1 >>"$SGE_JOB_SPOOL_DIR/environment"
"""

# A job script with the client programs of an Open Cluster Scheduler, as far as a test needs them.
OCS_JOB = """\
#!/bin/sh
export SGE_BINARY_PATH=$PWD/bin
exec python3 {tf_submit} {show}
"""


@pytest.fixture(scope="module", autouse=True)
def gpus(cluster: Cluster) -> Iterator[None]:
    """Two GPUs on node1 and node2 each."""
    with cluster.gpus("node1", 0, 1), cluster.gpus("node2", 0, 1):
        yield


@pytest.fixture
def no_leases(cluster: Cluster) -> Iterator[None]:
    """Nothing is leased meanwhile on node1 and node2."""
    nodes = ("node1", "node2")
    for node in nodes:
        cluster.root(node, "rm", "-rf", LEASES)
    yield
    assert [node for node in nodes if cluster.run(node, ["ls", LEASES]).returncode == 0] == []


def on(*nodes: str) -> list[str]:
    """Options of qsub for these nodes."""
    return ["-q", ",".join(f"all.q@{node}" for node in nodes)]


def visible(job: Job) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES of the tasks that run now."""
    return {
        name: environment(processes[0])["CUDA_VISIBLE_DEVICES"] for name, processes in job.processes().items()
    }


def shown(job: Job) -> list[str]:
    """What the two tasks of a job of SHOW have printed."""
    assert job.wait().status == 0, job.output
    return [line for task in ("worker:0", "worker:1") for line in job.lines(task)]


def is_free(cluster: Cluster, device: str) -> bool:
    """Whether nobody holds the lease of a device of node1."""
    lock = f"import fcntl; fcntl.flock(open('{LEASES}/{device}'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return cluster.run("node1", ["python3", "-c", lock]).returncode == 0


def test_jobs_on_one_host_have_their_own_gpus_and_free_them_when_killed(
    cluster: Cluster, folder: Folder
) -> None:
    family = ["--gpus-per-task", "1", f"{SCRIPTS}/family.py"]
    others = Folder(cluster, folder.name, "tfother")
    mine, other = folder.submit(*family, qsub=on("node1")), others.submit(*family, qsub=on("node1"))
    wait_until(lambda: (mine.output + other.output).count("| ready\n") == 4, 30, "all tasks run")
    assert visible(mine)["ps:0"] == visible(other)["ps:0"] == ""
    devices = [visible(job)["worker:0"] for job in (mine, other)]
    assert sorted(devices) == ["0", "1"]

    late = folder.submit(*family, qsub=on("node1")).wait()
    assert late.status == 2
    assert "node1: 1 task (worker:0) should have 1 GPU, but it has 0 GPUs for them (none free)" in late.output

    cluster.run("node1", ["qdel", mine.id])
    wait_until(lambda: is_free(cluster, devices[0]), 5, "the GPU of the deleted job is free")
    assert not is_free(cluster, devices[1])
    [launcher] = [
        process for process in cluster.processes("node1", "tfother") if "job_scripts" in process.command
    ]
    os.kill(launcher.machine_pid, signal.SIGKILL)
    wait_until(lambda: is_free(cluster, devices[1]), 5, "the GPU of the killed job is free")
    for job in (mine, other):
        job.wait()


def test_a_gpu_that_somebody_uses_without_a_lease_is_passed_over(folder: Folder) -> None:
    folder.write("pynvml.py", NVML)
    options = [*on("node1"), "-v", f"PYTHONPATH={folder.path}"]
    too_few = folder.submit("--gpus-per-task", "1", *SHOW, qsub=options)
    shared = folder.submit(
        "--gpus-per-task", "1", "--share-gpus", *SHOW, qsub=[*options, "-hold_jid", too_few.id]
    )
    assert too_few.wait().status == 2
    assert (
        "node1: 2 tasks (worker:0, worker:1) should have 2 GPUs, but it has 1 GPU for them (1)"
        in too_few.output
    )
    assert shown(shared) == ["1", "1"]


def test_ids_of_the_scheduler_are_shared_out_and_nothing_is_leased(folder: Folder, no_leases: None) -> None:
    granted = folder.submit("--gpus-per-task", "1", *SHOW, qsub=[*on("node1"), "-v", "SGE_HGR_gpu=gpu4 gpu5"])
    assert shown(granted) == ["4", "5"]


def test_a_gpu_that_a_prolog_chose_counts_and_nothing_is_leased(
    cluster: Cluster, folder: Folder, no_leases: None
) -> None:
    prolog = folder.write("prolog.sh", PROLOG)
    with cluster.changed("queue", "all.q", prolog=f"root@{prolog}"):
        chosen = folder.submit("--gpus-per-task", "1", "--share-gpus", *SHOW, qsub=on("node2"))
        assert shown(chosen) == ["1", "1"]


def test_the_grant_in_qstat_counts_where_open_cluster_scheduler_tells_tasks_wrong_ids(
    cluster: Cluster, folder: Folder
) -> None:
    """SGE_HGR_gpu holds the id of the last host everywhere; qstat -j has gpu=node1=(0),gpu=node2=(1)."""
    capture = (FIXTURES / "ocs-two-hosts-gpu" / "qstat-j.txt").read_text()
    folder.write("qstat-j.txt", capture.replace("ocs2=", "node1=").replace("ocs1=", "node2="))
    folder.write("bin/qstat", f'#!/bin/sh\nexec cat "{folder.path}/qstat-j.txt"\n')
    script = folder.write("ocs.sh", OCS_JOB.format(tf_submit=TF_SUBMIT, show=" ".join(SHOW)))
    options = ["-pe", "tensorflow", "2", "-cwd", "-j", "y", *on("node1", "node2"), "-masterq", "all.q@node1"]
    job_id = cluster.qsub(*options, "-v", "SGE_HGR_gpu=1", script, cwd=folder.path)
    assert shown(Job(cluster, job_id, cluster.home() / folder.name)) == ["0", "1"]
