"""Jobs whose tasks play a part (tests/scripts/play.py), and their processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gridengine import QUEUE, Process, wait_until
from jobs import SCRIPTS, Folder, Job, environment

PLAY = f"{SCRIPTS}/play.py"


def play(
    folder: Folder,
    *parts: str,
    options: Sequence[str] = (),
    slots: int = 4,
    qsub: Sequence[str] = (),
    pe: str = "tensorflow",
) -> Job:
    """Submit a job: `play(folder, "worker:1=sys.exit(3)", options=["--restarts", "1"])`."""
    return folder.submit(*options, PLAY, *parts, slots=slots, qsub=qsub, pe=pe)


def submit_script(folder: Folder, text: str, slots: int = 4, qsub: Sequence[str] = ()) -> Job:
    """Submit a shell script that runs tf_submit.py by itself."""
    options = ["-pe", "tensorflow", str(slots), "-cwd", "-j", "y", *qsub]
    job_id = folder.cluster.qsub(*options, folder.write("job.sh", text), cwd=folder.path)
    return Job(folder.cluster, job_id, folder.cluster.home() / folder.name)


def on(master: str, *nodes: str) -> list[str]:
    """Options of qsub for a job on these hosts only."""
    queues = ",".join(f"{QUEUE}@{node}" for node in (master, *nodes))
    return ["-q", queues, "-masterq", f"{QUEUE}@{master}"]


def wait_for(job: Job, text: str, count: int = 1) -> Job:
    """Wait until a job has printed something so many times."""
    wait_until(lambda: job.output.count(text) >= count, 60, f"{count} times {text!r} from job {job.id}")
    return job


def have_begun(job: Job, tasks: int) -> Job:
    """Wait until so many tasks play their part."""
    return wait_for(job, "| begins", tasks)


def parent(pid: int) -> int:
    """The parent of a process of the machine."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def processes(job: Job, text: str) -> list[Process]:
    """Processes of a job that have the text in their command line, on all hosts."""
    return [
        process
        for node in job.cluster.nodes
        for process in job.cluster.processes(node)
        if text in process.command and environment(process).get("JOB_ID") == job.id
    ]


def pid_of(job: Job, kind: str, task: str = "worker:0") -> int:
    """The process of a job, as the machine knows it, that is its launcher, or the task's guardian, agent,
    qrsh (the guardian, where the launcher started it without one) or itself (kind "task")."""
    if kind == "launcher":
        return processes(job, "job_scripts/")[0].machine_pid
    role, index = task.split(":")
    [running] = processes(job, f"--job_name {role} --task_index {index}")
    agent = parent(running.machine_pid)
    found = {"task": running.machine_pid, "agent": agent, "guardian": parent(agent)}
    connections = processes(job, f"qrsh -inherit {running.host} ")
    found["qrsh"] = connections[0].machine_pid if connections else found["guardian"]
    return found[kind]


def kill(job: Job, kind: str, number: int, task: str = "worker:0") -> None:
    os.kill(pid_of(job, kind, task), number)
