"""Whatever dies, the job ends, says why, has a true exit status and leaves nothing behind.

That nothing is left ten seconds after each test is checked in conftest.py.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Mapping

import pytest
from gridengine import Cluster, wait_until
from jobs import TF_SUBMIT, Folder, Job
from plays import PLAY, have_begun, kill, on, play, processes, submit_script, wait_for

Jobs = Mapping[str, Job]

AGAIN = "int(os.environ['RESTARTED'])"  # 1 where Grid Engine runs a job again

# Each is a job of its own: the parts of its tasks, options of tf_submit.py.
ENDINGS: dict[str, tuple[list[str], list[str]]] = {
    "exit": (["worker:1=time.sleep(0.5); print('oops'); sys.exit(3)", "worker=wait()"], []),
    "again": (["worker:1=sys.exit(99)", "worker=wait()"], []),
    "ps": (["ps=time.sleep(0.5); crash(9)", "worker=wait()"], []),
    "continue": (["worker:0=sys.exit(4)", "worker=time.sleep(2)"], ["--on-failure", "continue"]),
    "chief": (["worker:0=time.sleep(1)", "worker=wait()"], ["--success", "chief"]),
    "restart": (
        ["worker:1=print(os.environ['TF_CONFIG']); times(2) or sys.exit(5)", "worker=time.sleep(3)"],
        ["--restarts", "2"],
    ),
    "restarts": (["worker:1=sys.exit(5)", "worker=wait()"], ["--restarts", "2"]),
    "requeue": (
        [f"ps={AGAIN} or sys.exit(6); wait()", f"worker={AGAIN} or wait(); time.sleep(3)"],
        ["--requeue", "1"],
    ),
    "requeues": (["ps=sys.exit(6)", "worker=wait()"], ["--requeue", "1"]),
}


@pytest.fixture(scope="module")
def endings(cluster: Cluster) -> Jobs:
    """The jobs of ENDINGS, which ran side by side."""
    jobs = {
        name: play(Folder(cluster, f"ending-{name}"), *parts, options=options, slots=3)
        for name, (parts, options) in ENDINGS.items()
    }
    return {name: job.wait(300) for name, job in jobs.items()}


def summary(job: Job, task: str) -> dict[str, object]:
    """What summary.json says of a task."""
    role, index = task.split(":")
    tasks = job.json("summary.json")["tasks"]
    return next(found for found in tasks if (found["role"], found["index"]) == (role, int(index)))


def test_a_worker_that_fails_ends_the_job_with_its_status(endings: Jobs) -> None:
    job = endings["exit"]
    assert job.status == 3
    assert summary(job, "ps:0")["exit"] == summary(job, "worker:0")["exit"] == "stopped"
    failure = job.json("summary.json")["failure"]
    report = "\n".join(job.lines()).partition("first failure: ")[2].splitlines()
    assert report[:9] == [
        f"worker:1 on {failure['host']} ended with exit status 3",
        f"  time:  {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(failure['when']))}",
        "  task:  worker:1",
        f"  host:  {failure['host']}",
        "  exit:  3",
        f"  log:   {job.traces.name}/logs/worker-1.log",
        "  last lines:",
        "    begins",
        "    oops",
    ]


def test_a_crash_ends_the_job_within_two_seconds_and_grace_however_stubborn_the_others(
    folder: Folder,
) -> None:
    """A job of its own: other jobs beside it would cost time."""
    parts = ["worker:1=time.sleep(0.5); crash(11)", "worker=be_stubborn(); wait()"]
    job = play(folder, *parts, options=["--grace", "1"], slots=3).wait()
    assert job.status == 128 + signal.SIGSEGV
    assert "first failure: worker:1 on" in job.output
    assert "was killed by SIGSEGV" in job.output
    died = float(job.lines("worker:1")[-1].split()[-1])
    assert job.ended - died < 1 + 2 + 1  # grace, two seconds, and the accounting knows whole seconds only


def test_exit_status_99_of_a_task_does_not_run_the_job_again(endings: Jobs) -> None:
    job = endings["again"]
    assert job.status == 1
    assert "99 (the job ends with 1: Grid Engine runs a job again at 99)" in job.output
    assert job.output.count("first failure") == 1


def test_a_ps_that_dies_ends_the_job(endings: Jobs) -> None:
    assert endings["ps"].status == 137
    assert "first failure: ps:0 on" in endings["ps"].output


def test_on_failure_continue_lets_the_others_finish(endings: Jobs) -> None:
    job = endings["continue"]
    assert job.status == 4
    assert summary(job, "worker:1")["exit"] == "0"


def test_success_chief_ends_the_job_with_worker_0(endings: Jobs) -> None:
    job = endings["chief"]
    assert job.status == 0
    assert summary(job, "worker:1")["exit"] == "stopped"


def test_a_failed_worker_is_started_again_on_its_port_and_the_others_go_on(endings: Jobs) -> None:
    job = endings["restart"]
    assert job.status == 0
    assert summary(job, "worker:1")["restarts"] == 2
    assert job.lines("worker:1").count("begins") == 3
    assert job.lines("worker:0").count("begins") == 1
    configurations = [line for line in job.lines("worker:1") if line.startswith("{")]
    assert len(configurations) == 3
    assert len(set(configurations)) == 1


def test_when_restarts_are_used_up_the_job_fails(endings: Jobs) -> None:
    assert endings["restarts"].status == 5
    assert summary(endings["restarts"], "worker:1")["restarts"] == 2


def test_a_job_that_lost_its_ps_is_run_again_by_grid_engine(endings: Jobs) -> None:
    job = endings["requeue"]
    assert job.status == 0
    assert "99" in [record["exit_status"] for record in job.records]
    assert "asking Grid Engine to run the job again, 1 of 1 times" in job.output
    assert job.lines("ps:0").count("begins") == 2


def test_a_job_is_run_again_so_many_times_only(endings: Jobs) -> None:
    job = endings["requeues"]
    assert job.status == 6
    assert job.lines("ps:0").count("begins") == 2


# ---- processes that are killed


@pytest.fixture(scope="module")
def victims(cluster: Cluster) -> Jobs:
    """For each kind of process a job that lost one, side by side; all tasks are stubborn."""
    kinds = ("task", "agent", "guardian", "qrsh", "launcher")
    jobs = {
        kind: play(Folder(cluster, f"kill-{kind}"), "worker=be_stubborn(); wait()", slots=3, options=["-v"])
        for kind in kinds
    }
    for kind, job in jobs.items():
        kill(have_begun(job, 3), kind, signal.SIGKILL)
    return {kind: job.wait() for kind, job in jobs.items()}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("task", "worker:0 on node. was killed by SIGKILL"),
        ("agent", "worker:0 on node. is lost: the agent was killed by SIGKILL before it reported an exit"),
        ("guardian", "worker:0 on node. is lost: the agent was killed by SIGKILL before it reported an exit"),
        (
            "qrsh",
            "worker:0 on node. is lost: the connection was killed by SIGKILL before it reported an exit",
        ),
    ],
)
def test_whichever_process_of_a_task_is_killed_the_job_fails_and_says_so(
    victims: Jobs, kind: str, said: str
) -> None:
    assert victims[kind].status == 137
    assert re.search(f"tf_submit: error: {said}", victims[kind].output)
    # The death of a qrsh Grid Engine may answer by killing the job before it can report.
    if kind != "qrsh" or "the job failed" in victims[kind].output:
        assert re.search(f"first failure: {said}", victims[kind].output)
        assert "  task:  worker:0" in victims[kind].output


def test_when_the_launcher_is_killed_grid_engine_ends_the_job(victims: Jobs) -> None:
    assert victims["launcher"].status == 137


# ---- hosts


TICKS = "worker=be_stubborn(); [(print(i), time.sleep(1)) for i in range(12)]"


def test_a_host_that_vanishes_is_lost_and_one_that_comes_back_in_time_is_not(cluster: Cluster) -> None:
    options = ["--lost-after", "8", "--grace", "1"]
    lost = play(Folder(cluster, "lost"), TICKS, options=options, slots=2, qsub=on("node1", "node2"))
    back = play(Folder(cluster, "back"), TICKS, options=options, slots=2, qsub=on("node3", "node4"))
    for job in (lost, back):
        have_begun(job, 2)
    cluster.link("node2", up=False)
    cluster.link("node4", up=False)
    try:
        time.sleep(4)
        cluster.link("node4", up=True)
        wait_until(lambda: not cluster.processes("node2"), 12, "the agent on the cut-off host kills its task")
        assert not processes(lost, ""), "the job has ended"
    finally:
        cluster.link("node2", up=True)
    assert lost.wait().status == 1
    assert re.search(r"first failure: host node2 is lost: nothing heard of worker:0 for \d+ s", lost.output)
    assert back.wait().status == 0
    assert back.lines("worker:0") == ["begins", *map(str, range(12))]


# ---- starts


UNKNOWN_HOST = f"""\
sed 's/node3/nodeX/' $PE_HOSTFILE >$TMPDIR/hosts
PE_HOSTFILE=$TMPDIR/hosts python3 {TF_SUBMIT} {PLAY}
"""
# Two tasks take all that a host accepts for one slot.
BUSY = f"""\
host=$(sed -n '2s/ .*//p' $PE_HOSTFILE)
qrsh -inherit $host sleep 6 & qrsh -inherit $host sleep 6 &
sleep 1
python3 {TF_SUBMIT} -v {PLAY}
"""
LATE = f"""\
echo submitted
while [ ! -e cut ]; do sleep 0.1; done
python3 {TF_SUBMIT} --start-timeout 4 {PLAY}
"""


def test_starts_that_fail_are_explained_or_tried_again(cluster: Cluster) -> None:
    python = play(Folder(cluster, "no-python"), options=["--python", "/opt/no/python3"])
    unknown = submit_script(Folder(cluster, "unknown-host"), UNKNOWN_HOST)
    busy = submit_script(Folder(cluster, "busy"), BUSY)
    assert python.wait().status == 1
    assert "/opt/no/python3 cannot be run on node" in python.output
    assert "No such file or directory" in python.output
    assert unknown.wait().status == 1
    assert "Grid Engine cannot resolve the name of nodeX" in unknown.output
    assert busy.wait().status == 0, busy.output
    assert re.search(r"node\d did not take it yet, trying again in 2 s", busy.output)


def test_the_missing_are_named_when_the_start_timeout_ends(folder: Folder, cluster: Cluster) -> None:
    job = submit_script(folder, LATE, qsub=["-masterq", "all.q@node1"])
    wait_until(lambda: "submitted" in job.output, 20, "the job has started")
    cluster.link("node4", up=False)
    try:
        folder.write("cut", "")
        wait_until(lambda: "the job failed" in job.output, 30, "the job has ended")
    finally:
        cluster.link("node4", up=True)
    assert job.wait().status == 1
    assert re.search(r"first failure: worker:\d on node4 did not answer within 4 s", job.output)


# ---- the job's folder


@pytest.fixture
def small_disk(cluster: Cluster, folder: Folder) -> Iterator[Folder]:
    """A folder of 64 KiB on node1."""
    cluster.root("node1", "mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "small", folder.path)
    yield folder
    cluster.root("node1", "umount", "--lazy", folder.path)


def test_a_full_disk_under_the_logs_is_said_and_the_job_goes_on(small_disk: Folder) -> None:
    part = "worker:0=print('x' * 99_999); time.sleep(1); print('end')"
    job = play(small_disk, part, slots=2, qsub=["-q", "all.q@node1", "-o", "/home/tfuser"]).wait()
    assert job.status == 0
    assert job.lines("worker:0")[-1] == "end"
    assert "No space left on device; the log ends here, the job goes on" in job.output
    assert "summary.json: No space left on device" in job.output


def test_a_disk_that_is_full_at_the_start_is_an_error(cluster: Cluster, small_disk: Folder) -> None:
    cluster.run("node1", f"head -c 65536 /dev/zero >{small_disk.path}/full")
    job = play(small_disk, slots=2, qsub=["-q", "all.q@node1", "-o", "/home/tfuser"]).wait()
    assert job.status == 2
    assert re.search(r"error: cannot write \S+/cluster.json: No space left on device", job.output)
    assert "begins" not in job.output


# ---- training


EXAMPLE = "/srv/tf_submit/example.py"


def test_training_goes_on_with_a_worker_that_is_started_again_and_in_a_job_that_is_run_again(
    cluster: Cluster,
) -> None:
    words = [EXAMPLE, "--epochs", "4", "--checkpoint-every", "1"]
    restarted = Folder(cluster, "restarted").submit("--restarts", "1", *words, slots=3)
    requeued = Folder(cluster, "requeued").submit("--requeue", "1", *words, slots=3)
    wait_for(restarted, "worker:1@", 2)
    kill(restarted, "task", signal.SIGKILL, "worker:1")
    saved = "*.tf*/checkpoints/*.index"
    wait_until(lambda: list(requeued.folder.glob(saved)), 90, "there is a checkpoint")
    kill(requeued, "task", signal.SIGKILL, "ps:0")
    assert restarted.wait().status == 0, restarted.output
    assert summary(restarted, "worker:1")["restarts"] == 1
    assert "Test-Accuracy:" in restarted.output
    assert requeued.wait().status == 0, requeued.output
    assert "Resuming from" in requeued.output
    assert "Test-Accuracy:" in requeued.output
