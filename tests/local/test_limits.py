"""What a job's limits, its locale or its closed output leave of the machine: it runs, or says why not."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Sequence

import psutil
import pytest

from tf_submit import Group, Link, Task


def shell(line: str) -> Sequence[str]:
    """Runs Python as the last command of a shell: ``shell("ulimit -n 9; exec {}")``."""
    return ["bash", "-c", line.format('"$0" "$@"'), sys.executable]


# ---- limits


def test_a_job_of_many_agents_fits_in_little_address_space_and_raises_its_limit_of_files(folder):
    """With a thread's usual 8 MiB of stack and 64 MiB for malloc, 30 threads would need 2 GiB."""
    folder.write("train.py", "import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0] >> 20)")
    limits = shell("ulimit -v 307200; ulimit -Sn 40; exec {}")
    done = folder.run("-q", "--local", "30", "--ps", "0", "train.py", python=limits)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"| 300\n") == 30


def test_small_jobs_leave_the_limit_of_files_alone(folder):
    folder.write("train.py", "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))")
    limits = shell("ulimit -Sn 300; ulimit -Hn 400; exec {}")
    done = folder.run("-q", "--local", "2", "--ps", "0", "train.py", python=limits)
    assert done.stdout.count(b"| (300, 400)\n") == 2


def test_an_agent_for_which_there_is_no_thread_is_an_error_and_does_not_stay(monkeypatch):
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    link = Link(Group("localhost", (Task("worker", 0, "localhost"),)), [], queue.SimpleQueue())
    with pytest.raises(OSError, match="can't start new thread"):
        link.start(["sleep", "600"])
    alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    assert "sleep" not in [child.name() for child in alive]


# ---- locale


@pytest.mark.parametrize("agent", ["C.UTF-8", "POSIX"])
@pytest.mark.parametrize("launcher", ["C.UTF-8", "POSIX"])
def test_arguments_variables_and_paths_are_the_same_bytes_in_every_locale(folder, launcher, agent):
    folder.write(
        "größe.py",
        "import os, sys; show = lambda text: os.fsencode(text).hex()\n"
        "print(show(sys.argv[1]), show(os.environ['NAME']), show(os.path.basename(sys.argv[0])))",
    )
    locale = "LC_ALL={} PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"
    python = folder.write("python", f'#!/bin/sh\n{locale.format(agent)} exec {sys.executable} "$@"')
    words = ["-q", "--local", "1", "--ps", "0", "--python", python, "größe.py", "日本\udcff"]
    done = folder.run(*words, python=shell(f"{locale.format(launcher)} exec {{}}"), NAME="wörter")
    texts = ["日本".encode() + b"\xff", "wörter".encode(), "größe.py".encode()]
    assert done.stdout.decode().split(" | ")[-1].split() == [text.hex() for text in texts]


# ---- output


def test_with_stdout_and_stderr_closed_nothing_strange_gets_into_the_logs(folder):
    folder.write("train.py", "print('trained')")
    done = folder.run("--local", "2", "--ps", "0", "train.py", python=shell("exec {} <&- >&- 2>&-"))
    assert (done.returncode, done.stdout) == (0, b"")
    logs = folder.path / "train.py.tflocal1" / "logs"
    assert [path.read_text() for path in logs.glob("worker-*.log")] == ["trained\n"] * 2


def test_output_that_cannot_be_written_is_a_failure_however_short_the_job(folder):
    folder.write("train.py", "print('trained')")
    done = folder.run("--local", "1", "--ps", "0", "train.py", python=shell("exec {} >/dev/full"))
    why = "cannot write the job's standard output: No space left on device"
    assert done.returncode == 1
    assert f"first failure: {why}" in done.stderr.decode()
    summary = json.loads((folder.path / "train.py.tflocal1" / "summary.json").read_text())
    assert (summary["status"], summary["failure"]["what"]) == (1, why)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_plan_that_cannot_be_written_is_an_error(folder, form):
    words = ["--local", "2", "--dry-run", *form, "train.py"]
    done = folder.run(*words, python=shell("exec {} >/dev/full"))
    assert done.returncode == 2
    assert done.stderr == (
        b"tf_submit: error: cannot write the job's standard output: No space left on device\n"
    )


def test_a_working_directory_that_is_gone_is_an_error(folder):
    gone = folder.path / "gone"
    done = folder.run(
        "--local", "2", "train.py", python=shell(f"mkdir {gone}; cd {gone}; rmdir {gone}; exec {{}}")
    )
    assert done.returncode == 2
    assert f"the working directory {gone} cannot be used: No such file or directory" in done.stderr.decode()
