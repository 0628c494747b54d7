"""Jobs of tf_submit.py on a real Grid Engine: how they start, what their tasks get and what users see.

TensorFlow isn't needed here; test_tensorflow.py has the jobs that train.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from gridengine import Cluster, wait_until
from jobs import SCRIPTS, TF_SUBMIT, Folder, Job

SHOW = f"{SCRIPTS}/show.py"
DIFFICULT = ["a b", "", "$HOME `id`", "it's", '"', ";", "\\", "*", "!x", "größer", "{}"]

# Every task says that it is there; the trainers go on once the folder has a file "go".
MEET = """\
import json, os, time
config = json.loads(os.environ["TF_CONFIG"])
print(json.dumps(config), flush=True)
while config["task"]["type"] in ("ps", "evaluator") or not os.path.exists("go"):
    time.sleep(0.05)
"""


def shown(job: Job, task: str = "worker:0") -> dict[str, Any]:
    """What show.py found as a task of a job that has succeeded."""
    assert job.status == 0, job.output
    [line] = job.lines(task)
    found: dict[str, Any] = json.loads(line)
    return found


# --- start


needs_csh = pytest.mark.skipif(not os.path.exists("/bin/csh"), reason="csh is not installed")

SHELLS = [
    pytest.param("/bin/sh", "posix_compliant"),
    pytest.param("/bin/sh", "script_from_stdin"),
    pytest.param("/bin/csh", "posix_compliant", marks=needs_csh),
    pytest.param("/bin/csh", "script_from_stdin", marks=needs_csh),
    pytest.param("/bin/csh", "unix_behavior", marks=needs_csh),
]


@pytest.mark.parametrize(("shell", "mode"), SHELLS)
def test_it_starts_under_every_queue_shell_and_start_mode_with_its_exact_arguments(
    cluster: Cluster, folder: Folder, shell: str, mode: str
) -> None:
    with cluster.changed("queue", "all.q", shell=shell, shell_start_mode=mode):
        job = folder.submit(SHOW, *DIFFICULT).wait()
    assert shown(job)["arguments"][: len(DIFFICULT)] == DIFFICULT


def test_it_starts_as_a_binary_with_its_exact_arguments(folder: Folder) -> None:
    job = folder.submit(SHOW, *DIFFICULT, qsub=["-b", "y", "-shell", "n"]).wait()
    assert shown(job)["arguments"][: len(DIFFICULT)] == DIFFICULT


def test_a_script_is_found_where_the_job_was_submitted_also_without_cwd(
    cluster: Cluster, folder: Folder
) -> None:
    folder.write("train.py", "import model, os; print(model.__name__, os.getcwd())")
    folder.write("model.py", "")
    with_cwd = folder.submit("train.py")
    job_id = cluster.qsub("-pe", "tensorflow", "2", "-j", "y", TF_SUBMIT, "train.py", cwd=folder.path)
    without_cwd = Job(cluster, job_id, cluster.home())
    assert with_cwd.wait().lines("worker:0") == [f"model {folder.path}"]
    assert without_cwd.wait().lines("worker:0") == ["model /home/tfuser"]
    assert without_cwd.json("summary.json")["status"] == 0


def test_the_nodes_use_the_python_that_is_asked_for(folder: Folder) -> None:
    mine = folder.write("my python", '#!/bin/sh\nMINE=yes exec /srv/venv/bin/python3 "$@"\n')
    default, chosen = folder.submit(SHOW), folder.submit("--python", mine, SHOW)
    assert shown(default.wait())["python"] == "/srv/venv/bin/python3"
    assert shown(chosen.wait())["environment"]["MINE"] == "yes"


NOISE = "echo Welcome; printf 'no end of line'; head -c 100000 /dev/urandom; touch ~/noise-on-`hostname`\n"


@pytest.fixture(params=["/bin/bash", pytest.param("/bin/csh", marks=needs_csh)])
def noisy_user(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A user whose login shell prints a lot, and leaves a file noise-on-HOST in the home folder."""
    user, files = "tfother", (".bashrc", ".cshrc")
    cluster.root("node1", "usermod", "--shell", request.param, user)
    for file in files:
        cluster.write(file, NOISE, user)
    yield user
    cluster.root("node1", "usermod", "--shell", "/bin/bash", user)
    for file in (*files, *cluster.home(user).glob("noise-on-*")):
        (cluster.home(user) / file).unlink()


def test_what_login_shells_print_does_no_harm(cluster: Cluster, folder: Folder, noisy_user: str) -> None:
    qsub = [
        "-v",
        f"BASH_ENV=/home/{noisy_user}/.bashrc",
    ]  # as environment modules do; else `bash -c` reads nothing
    job = Folder(cluster, folder.name, noisy_user).submit(SHOW, slots=4, qsub=qsub).wait()
    assert shown(job)["environment"]["USER"] == noisy_user
    noise = [path.name for path in cluster.home(noisy_user).glob("noise-on-*")]
    assert sorted(noise) == [f"noise-on-{node}" for node in cluster.nodes]


# --- tasks


def test_lines_arrive_while_the_job_runs(folder: Folder) -> None:
    folder.write("meet.py", MEET)
    job = folder.submit("-p", "2222", "meet.py", slots=4)
    wait_until(lambda: len(job.lines("worker:2")) == 1, 30, "the last task speaks")
    folder.write("go", "")
    job.wait()
    assert job.status == 0
    assert [record["exit_status"] for record in job.records] == ["0"] * 5
    header, *placement = job.lines()[:5]
    assert header.split() == ["task", "host", "address", "cores"]
    assert [line.split()[0] for line in placement] == ["ps:0", "worker:0", "worker:1", "worker:2"]
    assert placement[0].split()[1] == job.records[-1]["hostname"]  # the ps is beside the job script
    assert job.lines()[-1].startswith("the job succeeded: 4 tasks on 4 hosts")


def test_each_role_gets_its_tf_config(folder: Folder) -> None:
    folder.write("meet.py", MEET)
    job = folder.submit("--ps", "2", "--chief", "--evaluator", "--spread-ps", "meet.py", slots=6)
    roles = {"ps": 2, "chief": 1, "worker": 2, "evaluator": 1}
    names = [f"{role}:{index}" for role, count in roles.items() for index in range(count)]
    wait_until(lambda: all(job.lines(name) for name in names), 30, "all tasks speak")
    folder.write("go", "")
    job.wait()
    assert job.status == 0
    cluster = job.json("cluster.json")["cluster"]
    assert len({address.partition(":")[0] for address in cluster["ps"]}) == 2  # on different hosts
    assert {role: len(tasks) for role, tasks in cluster.items()} == {"ps": 2, "chief": 1, "worker": 2}
    configs = {name: json.loads(job.lines(name)[0]) for name in names}
    assert configs.pop("evaluator:0")["cluster"].keys() == {"evaluator"}
    for name, config in configs.items():
        role, index = name.split(":")
        assert config == {"cluster": cluster, "task": {"type": role, "index": int(index)}}


def test_the_size_is_what_was_granted_and_slots_left_over_are_named(folder: Folder) -> None:
    job = folder.submit("--ps", "0", "--slots-per-task", "2", SHOW, slots="3-7").wait()
    assert job.status == 0
    tasks = job.json("cluster.json")["tasks"]
    assert [(task["role"], task["slots"]) for task in tasks] == [("worker", 2)] * 3
    [warning] = [line for line in job.lines() if "warning" in line]
    assert "slots left over by --slots-per-task 2: 1 of 1 on node" in warning


# --- faults: an error that says what to do, and nothing started


def test_what_cannot_start_says_why(cluster: Cluster, folder: Folder) -> None:
    bare = f"{folder.path}/bare"
    cluster.run("node1", ["/usr/bin/python3", "-m", "venv", "--without-pip", bare])
    old = folder.write("old", "#!/bin/sh\necho 'future feature annotations is not defined' >&2; exit 1\n")
    faults = {
        folder.submit("nowhere.py"): (2, f"no script nowhere.py in {folder.path} on node"),
        folder.submit("nowhere.sh"): (2, "no command nowhere.sh in PATH"),
        folder.submit("--ps", "3", SHOW): (2, "room for 2 tasks, but 3 ps, 1 worker need 4"),
        folder.submit("--port", "http", SHOW): (2, "'http' is not a number"),
        folder.submit("--python", f"{bare}/bin/python3", SHOW): (1, f"install psutil for {bare}/bin/python3"),
        folder.submit("--python", "/nowhere/python3", SHOW): (1, "/nowhere/python3 cannot be run on node"),
        folder.submit("--python", old, SHOW): (1, f"{old} on node"),
    }
    for job, (status, text) in faults.items():
        job.wait()
        assert text in job.output
        assert job.status == status, job.output
        assert job.lines("worker:0") == []
        assert any(job.folder.glob(f"*.tf{job.id}")) == (status == 1)  # a job refused at once leaves nothing
