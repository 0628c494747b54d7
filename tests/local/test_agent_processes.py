"""Launcher, agents and tasks as real processes on this machine: whatever is killed or signalled, everything
ends, and the exit status is true."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tf_submit import BOOTSTRAP, MARK, agent_program, frame, message

ROOT = Path(__file__).parents[2]
PLAY = ROOT / "tests" / "scripts" / "play.py"
STUBBORN = "worker=be_stubborn(); wait()"


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def stat(pid: int) -> list[str]:
    """State, parent, process group … of a process: proc_pid_stat(5) from field 3 on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


class LocalJob:
    """A `tf_submit.py --local 3` in a process group of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.mark = f"MARK={uuid.uuid4()}"  # an environment variable that all its processes inherit
        self.output = folder / "output"
        with open(self.output, "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, ROOT / "tf_submit.py", "--local", "3", *words],
                cwd=folder,
                env={**os.environ, "MARK": self.mark.partition("=")[2]},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def alive(self, text: str = "") -> list[int]:
        """Its processes that have this text in their command line."""
        return [
            int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if self.is_mine(path, text)
        ]

    def is_mine(self, path: Path, text: str) -> bool:
        try:
            mine = self.mark.encode() in path.read_bytes().split(b"\0")
            command = path.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended
            return False
        return mine and text in command

    def pid_of(self, kind: str) -> int:
        """Of worker:0: the "task", its "agent", its "guardian"; or the "launcher"."""
        if kind == "launcher":
            return self.process.pid
        [task] = self.alive("--job_name worker --task_index 0")
        agent = int(stat(task)[1])
        return {"task": task, "agent": agent, "guardian": int(stat(agent)[1])}[kind]

    def wait_for(self, text: str, count: int) -> LocalJob:
        wait_until(lambda: self.output.read_text().count(text) >= count)
        return self

    def end(self) -> int:
        """The exit status, as a shell has it."""
        status = self.process.wait(timeout=30)
        return status if status >= 0 else 128 - status


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., LocalJob]]:
    """Starts a job with these arguments; nothing of it may be left ten seconds after the test."""
    jobs = []

    def start_job(*words: str) -> LocalJob:
        jobs.append(LocalJob(tmp_path, *words))
        return jobs[-1]

    yield start_job
    for job in jobs:
        try:
            wait_until(lambda job=job: not job.alive(), 10)
        finally:
            for pid in job.alive():
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["task", "agent", "guardian", "launcher"])
def test_whatever_is_killed_everything_ends(start, kind):
    job = start("--grace", "1", str(PLAY), STUBBORN).wait_for("| begins", 3)
    wait_until(lambda: len(job.alive("setsid")) + len(job.alive("trap :")) >= 2)
    os.kill(job.pid_of(kind), signal.SIGKILL)
    assert job.end() == 137


def test_a_job_whose_processes_are_all_killed_but_the_agents_and_tasks_ends(start):
    job = start("--grace", "1", str(PLAY), STUBBORN).wait_for("| begins", 3)
    os.killpg(job.process.pid, signal.SIGKILL)  # as Grid Engine kills a job script: launcher and guardians
    assert job.end() == 137


def test_ctrl_c_tells_the_tasks_once_and_a_second_one_kills_them(start, tmp_path):
    part = "worker:0=keep_checkpoint(); time.sleep(60)"
    job = start("--grace", "60", str(PLAY), part, "worker=keep_checkpoint()").wait_for("| ready", 2)
    os.killpg(job.process.pid, signal.SIGINT)
    job.wait_for("stopped by SIGINT", 1)
    time.sleep(1.2)  # sooner it would count as the same
    os.killpg(job.process.pid, signal.SIGINT)
    assert job.end() == 130
    assert [path.read_text() for path in sorted(tmp_path.glob("checkpoint-*"))] == ["SIGTERM ", "SIGTERM "]


@pytest.mark.parametrize(("name", "got"), [("INT", "SIGINT"), ("USR2", "SIGUSR2")])
def test_tasks_get_the_stop_signal_that_was_asked_for(start, tmp_path, name, got):
    job = start("--stop-signal", name, str(PLAY), "worker=keep_checkpoint()").wait_for("| ready", 2)
    os.kill(job.process.pid, signal.SIGTERM)
    assert job.end() == 143
    assert (tmp_path / "checkpoint-worker-1").read_text().split() == [got]


def test_when_the_job_is_suspended_its_tasks_stop_and_go_on_with_it(start):
    job = start("--lost-after", "4", str(PLAY), "worker=time.sleep(5)").wait_for("| begins", 3)
    tasks = job.alive("--job_name worker")
    os.killpg(job.process.pid, signal.SIGSTOP)
    wait_until(lambda: all(stat(task)[0] == "T" for task in tasks), 4)
    time.sleep(5)
    os.killpg(job.process.pid, signal.SIGCONT)
    assert job.end() == 0


def test_what_a_task_leaves_behind_ends_with_it_also_before_it_is_started_again(start):
    part = "worker:0=times(1) or (be_stubborn(), time.sleep(0.5), sys.exit(3)); time.sleep(2)"
    job = start("--restarts", "1", str(PLAY), part).wait_for("starting it again", 1)
    wait_until(lambda: not job.alive("trap :"), 1.5)
    assert job.end() == 0


@pytest.mark.parametrize("left", range(540_000, 720_000, 30_000))
def test_the_end_of_the_output_waits_for_a_reader_that_pauses(tmp_path, left):
    """The task has ended, but what it wrote last is still in its pipe, since the agent holds enough."""
    part = "worker=[os.write(1, b'x' * 99 + bytes([10])) for i in range(40_000)]"
    command = [sys.executable, ROOT / "tf_submit.py", "-q", "--local", "1", "--ps", "0", PLAY, part]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as job:
        received = job.stdout.read(4_000_000 - left)
        time.sleep(1.5)
        received += job.stdout.read()
    assert received.count(b"x" * 99) == 40_000


def test_the_lines_of_many_tasks_do_not_wake_their_agent_one_by_one(start):
    part = "worker=[(print(i, flush=True), time.sleep(0.05)) for i in range(40)]; wait()"
    job = start("--local", "20", "--ps", "0", "--per-host", str(PLAY), part).wait_for("| 39", 20)
    status = Path(f"/proc/{job.pid_of('agent')}/status").read_text()
    assert int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0]) < 20 * 40 / 2
    os.kill(job.process.pid, signal.SIGTERM)
    assert job.end() == 143
    assert all(
        f"worker:{task}@localhost | {line}\n" in job.output.read_text()
        for task in range(20)
        for line in range(40)
    )


def test_when_nobody_reads_its_output_any_more_the_job_ends(tmp_path):
    part = "worker=[print(i) for i in range(9999)]; wait()"
    command = f"{sys.executable} {ROOT}/tf_submit.py --local 2 {PLAY} '{part}'"
    job = subprocess.run(
        ["bash", "-c", f"{command} | head -n 3; echo ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert job.stdout.splitlines()[-1] == "1"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"no frame, certainly not", "no frame starts with b'no frame,'"),
        (frame(b"M", 0, b"{"), "no message: b'{'"),
        (message("dance"), "no message:"),
        (frame(b"1", 7, b"output"), "output of task 7 of 1"),
    ],
)
def test_an_agent_that_cannot_be_understood_is_a_failure(start, tmp_path, said, error):
    (tmp_path / "said").write_bytes(MARK + said)
    agent = tmp_path / "agent"
    agent.write_text("#!/bin/sh\ncat said\ncat >/dev/null\n")
    agent.chmod(0o755)
    job = start("--ps", "0", "--local", "1", "--python", str(agent), str(PLAY))
    assert job.end() == 1
    assert f"worker:0 could not be started: {error}" in job.output.read_text()


@pytest.mark.parametrize("garbage", [b"no frame, certainly not", frame(b"M", 0, b"{"), message("dance"), b""])
def test_an_agent_that_does_not_understand_its_launcher_ends_with_its_tasks(garbage):
    agent = subprocess.Popen(
        [sys.executable, "-c", BOOTSTRAP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _, errors = agent.communicate(agent_program() + garbage, timeout=20)
    assert agent.returncode != 0
