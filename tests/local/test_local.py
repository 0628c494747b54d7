"""`tf_submit.py --local N`: agents, output and files as in a job, real processes, but no scheduler."""

from __future__ import annotations

import json
import random
import socket
import sys
from typing import Any

import pytest

from tf_submit import MARK, message

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
WRITE = "import sys; sys.stdout.buffer.write(open('output', 'rb').read())"
PREFIX = b"worker:0@localhost | "


def shown(folder, *words: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of worker 0 as SHOW found them."""
    done = folder.run("-q", "--local", "1", "--ps", "0", *words, **variables)
    assert done.returncode == 0, done.stderr
    arguments, environment = json.loads(done.stdout.removeprefix(PREFIX))
    return arguments, environment


# ---- a run


def test_a_run_looks_and_leaves_traces_like_a_job(folder):
    folder.write("train.py", "import time; time.sleep(0.5); print('trained')")
    done = folder.run("--local", "3", "train.py")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0
    assert [line.split()[2] for line in lines[:4]] == ["task", "ps:0", "worker:0", "worker:1"]
    assert {"worker:0@localhost | trained", "worker:1@localhost | trained"} < set(lines)
    assert lines[-1].startswith("tf_submit | the job succeeded: 3 tasks on 1 host")
    traces = folder.path / "train.py.tflocal1"
    assert sorted(path.name for path in traces.rglob("*.*")) == [
        *("cluster.json", "ps-0.log", "summary.json", "tf_submit.log", "worker-0.log", "worker-1.log")
    ]
    assert (traces / "logs" / "worker-1.log").read_text() == "trained\n"
    assert json.loads((traces / "summary.json").read_text())["status"] == 0


def test_each_run_has_a_folder_of_its_own(folder):
    folder.write("train.py", "")
    for _ in range(2):
        folder.run("--local", "1", "--ps", "0", "train.py")
    assert sorted(path.name for path in folder.path.glob("train.py.tf*")) == [
        "train.py.tflocal1",
        "train.py.tflocal2",
    ]


# ---- output


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


OUTPUT = {
    "binary without an end of line": noise(1_000_000) + b"!",
    "lines of a megabyte": b"\n".join(letter * 1_000_000 for letter in (b"a", b"b", b"c")) + b"\n",
    "text that looks like a frame": MARK + message("exit", task=0, status=9) + message("bye") + MARK + b"\n",
    "NUL and carriage returns": b"1%\r2%\r\n\0\0\n\n",
    "a single byte": b"x",
}


@pytest.mark.parametrize("output", OUTPUT.values(), ids=OUTPUT)
def test_output_arrives_byte_by_byte(folder, output):
    folder.write("train.py", WRITE)
    (folder.path / "output").write_bytes(output)
    done = folder.run("-q", "--local", "1", "--ps", "0", "train.py")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == PREFIX + output.removesuffix(b"\n").replace(b"\n", b"\n" + PREFIX) + b"\n"
    assert (folder.path / "train.py.tflocal1" / "logs" / "worker-0.log").read_bytes() == output


def test_stdout_and_stderr_stay_apart_but_for_the_log(folder):
    folder.write("train.py", "import sys; print('fine'); print('bad', file=sys.stderr)")
    done = folder.run("-q", "--local", "1", "--ps", "0", "train.py")
    assert (done.stdout, done.stderr) == (PREFIX + b"fine\n", PREFIX + b"bad\n")
    log = (folder.path / "train.py.tflocal1" / "logs" / "worker-0.log").read_text()
    assert sorted(log.splitlines()) == ["bad", "fine"]


# ---- what a script gets


def test_arguments_reach_the_script_exactly(folder):
    folder.write("train.py", SHOW)
    difficult = [
        "a b",
        "",
        "$HOME `id`",
        "it's",
        '"',
        ";",
        "\\",
        "*",
        "two\nlines",
        "größer",
        "{}",
        "\udcff",
        "--",
    ]
    arguments, _ = shown(folder, "--tf-config-only", "train.py", *difficult)
    assert arguments == difficult


def test_classic_flags_follow_the_arguments(folder):
    folder.write("train.py", SHOW)
    arguments, environment = shown(folder, "train.py", "--epochs", "3")
    [address] = json.loads(environment["TF_CONFIG"])["cluster"]["worker"]
    assert arguments == ["--epochs", "3", "-w", address, "--job_name", "worker", "--task_index", "0"]


def test_a_command_gets_its_placeholders_filled_in(folder):
    folder.write("start.sh", '#!/bin/sh\necho "$1 of $2 runs for $*"')
    done = folder.run(
        "-q", "--local", "2", "--", "./start.sh", "{job_name}:{task_index}", "{worker_hosts}", "a  b"
    )
    assert done.returncode == 0
    [line] = [line for line in done.stdout.decode().splitlines() if line.startswith("worker:0")]
    assert line.startswith("worker:0@localhost | worker:0 of localhost:")
    assert line.endswith(" a  b")


@pytest.mark.parametrize("command", [["start.sh"], ["./start.sh"], ["--", "start.sh"], ["sh", "start.sh"]])
def test_a_command_is_found_in_the_folder_or_in_path(folder, command):
    folder.write("start.sh", "#!/bin/sh\necho started")
    done = folder.run("-q", "--local", "1", "--ps", "0", *command)
    assert done.stdout == PREFIX + b"started\n"


def test_the_environment_reaches_the_tasks_and_proxies_leave_the_cluster_alone(folder):
    folder.write("train.py", SHOW)
    _, environment = shown(
        folder, "train.py", MINE="a  b\nc", https_proxy="http://proxy:3128", no_proxy="intranet"
    )
    assert environment["MINE"] == "a  b\nc"
    assert environment["no_proxy"] == "intranet,localhost"
    assert environment["TF_SUBMIT_JOB_DIR"] == str(folder.path / "train.py.tflocal1")


# ---- --dry-run


def test_a_dry_run_needs_no_packages_and_starts_nothing(folder):
    bare = ["-I", "-S"]  # without site-packages: neither TensorFlow nor psutil
    hosts = folder.path / "hosts"
    hosts.write_text("node1 2 all.q@node1 UNDEFINED\nnode2 1 all.q@node2 UNDEFINED\n")
    job = {"PE_HOSTFILE": str(hosts), "JOB_ID": "17", "NSLOTS": "3", "PATH": ""}
    python = [sys.executable, *bare]
    table = folder.run("--dry-run", "-p", "2222", "nowhere.py", python=python, **job)
    assert table.stdout.decode().splitlines() == [
        "tf_submit | task      host   address     cores",
        "tf_submit | ps:0      node1  node1:2222  ?",
        "tf_submit | worker:0  node1  node1:2223  ?",
        "tf_submit | worker:1  node2  node2:2222  ?",
    ]
    found = folder.run("--dry-run", "--json", "nowhere.py", python=python, **job)
    unknown: dict[str, Any] = {"address": None, "slots": 1, "cores": None, "gpus": None}
    assert json.loads(found.stdout) == {
        "job_id": "17",
        "tasks": [
            {"role": "ps", "index": 0, "host": "node1", **unknown},
            {"role": "worker", "index": 0, "host": "node1", **unknown},
            {"role": "worker", "index": 1, "host": "node2", **unknown},
        ],
        "cluster": {"ps": [None], "worker": [None, None]},
    }
    assert [path.name for path in folder.path.iterdir()] == ["hosts"]


# ---- errors: exit status 2, and nothing is left


def refusal(folder, *words: str, **variables: str) -> str:
    """The error of a run that must not even begin."""
    before = set(folder.path.iterdir())
    done = folder.run(*words, **variables)
    assert (done.returncode, done.stdout) == (2, b"")
    assert set(folder.path.iterdir()) == before
    return done.stderr.decode()


def test_outside_a_job_it_says_how_to_submit(folder):
    folder.write("train.py", "")
    error = refusal(folder, "train.py")
    assert "qsub -pe tensorflow 4 -binding linear:1 tf_submit.py SCRIPT" in error
    assert "tf_submit.py --local 3 SCRIPT" in error


@pytest.mark.parametrize(
    ("text", "slots", "error"),
    [
        ("", "2", "hosts: the host file is empty"),
        ("node1 2 all.q@node1\nnode2 two", "4", "hosts:2: 'node2 two': the slots, 'two', should be a number"),
        ("node1 2 all.q@node1", "3", "hosts: the host file grants 2 slots, but NSLOTS is 3"),
    ],
)
def test_a_bad_host_file_is_named_with_line_and_text(folder, text, slots, error):
    folder.write("train.py", "")
    hosts = folder.path / "hosts"
    hosts.write_text(text)
    assert error in refusal(folder, "train.py", PE_HOSTFILE=str(hosts), NSLOTS=slots)


def test_without_qrsh_nothing_starts(folder):
    folder.write("train.py", "")
    (folder.path / "hosts").write_text("node1 2\n")
    error = refusal(folder, "train.py", PE_HOSTFILE="hosts", NSLOTS="2", PATH="")
    assert "qrsh not found" in error


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--local", "2", "nowhere.py"], f"no script nowhere.py in FOLDER on {socket.gethostname()}"),
        (["--local", "2", "--", "nowhere", "x"], "no command nowhere in PATH (/bin:/usr/bin) or FOLDER"),
        (["--local", "2", "plain.sh"], "FOLDER/plain.sh is not executable: chmod +x it"),
        (["--local", "1", "train.py"], "the job has room for 1 task, but 1 ps, 1 worker need 2"),
        (["--local", "2"], "which script?"),
        (["--local", "0", "train.py"], "argument --local"),
        (["--sp", "2", "train.py"], "unrecognized arguments"),
    ],
)
def test_what_the_user_can_mend_is_an_error_before_anything_starts(folder, words, error):
    folder.write("train.py", "")
    (folder.path / "plain.sh").write_text("echo")
    assert error.replace("FOLDER", str(folder.path)) in refusal(folder, *words, PATH="/bin:/usr/bin")


def test_a_task_that_cannot_be_started_fails_the_job(folder):
    folder.write("start.sh", "#!/nowhere/sh\n")
    done = folder.run("--local", "1", "--ps", "0", "./start.sh")
    assert done.returncode == 127
    assert (
        b"worker:0 on localhost cannot start: [Errno 2] No such file or directory: './start.sh'"
        in done.stderr
    )
