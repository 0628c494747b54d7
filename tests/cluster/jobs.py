"""Jobs of tf_submit.py on the test cluster: submitting them, and what they leave."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gridengine import USER, Cluster, Process

TF_SUBMIT = "/srv/tf_submit/tf_submit.py"
SCRIPTS = "/srv/tf_submit/tests/scripts"


def environment(process: Process) -> dict[str, str]:
    """With which a process was started; nothing once it has ended."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{process.machine_pid}/environ").read_text(errors="replace")
        return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
    return {}


class Job:
    """A job of tf_submit.py. After `wait` its status, records and files are complete."""

    def __init__(self, cluster: Cluster, job_id: str, folder: Path) -> None:
        self.cluster, self.id, self.folder = cluster, job_id, folder
        self.records: list[dict[str, str]] = []  # of qacct: one per task that ran, then the script's

    def wait(self, timeout: float = 120) -> Job:
        self.records = self.cluster.wait(self.id, timeout)
        return self

    @property
    def status(self) -> int:
        """Exit status of the job script; qacct says "137 (Killed)"."""
        return int(self.records[-1]["exit_status"].split()[0])

    @property
    def ended(self) -> float:
        """When the job script ended, in whole seconds since the epoch."""
        return time.mktime(time.strptime(self.records[-1]["end_time"]))

    @property
    def output(self) -> str:
        """What the job has printed so far, stdout and stderr in one; a job may be told to print elsewhere."""
        files = self.folder.parent.rglob(f"*.o{self.id}")
        return "".join(path.read_text(errors="replace") for path in files)

    def lines(self, task: str = "") -> list[str]:
        """What a task has printed, `lines("worker:0")`, or the launcher itself, without prefixes."""
        head = rf"{task}@\S+ \| " if task else r"tf_submit(?: \||:) "
        return re.findall(rf"^{head}(.*)$", self.output, re.MULTILINE)

    def processes(self) -> dict[str, list[Process]]:
        """The processes of each task that runs now, by task: those with its flags on their command line."""
        found: dict[str, list[Process]] = {}
        on_all_nodes = (self.cluster.processes(node, user=None) for node in self.cluster.nodes)
        for process in itertools.chain.from_iterable(on_all_nodes):
            role = re.search(r"--job_name (\w+) --task_index (\d+)$", process.command)
            if role and environment(process).get("JOB_ID") == self.id:
                found.setdefault(":".join(role.groups()), []).append(process)
        return found

    @property
    def traces(self) -> Path:
        """The folder of its logs and JSON files, as the machine sees it."""
        [folder] = self.folder.glob(f"*.tf{self.id}")
        return folder

    def json(self, name: str) -> Any:
        """The contents of "cluster.json" or "summary.json"."""
        return json.loads((self.traces / name).read_text())


class Folder:
    """A folder of a user, on all hosts, from which jobs are submitted; `path` is its name there."""

    def __init__(self, cluster: Cluster, name: str, user: str = USER) -> None:
        self.cluster, self.name, self.user = cluster, name, user
        self.path = f"/home/{user}/{name}"
        self.write(".keep", "")

    def write(self, name: str, text: str) -> str:
        """Write an executable file into it; its path on the hosts."""
        return self.cluster.write(f"{self.name}/{name}", text, self.user)

    def submit(
        self,
        *words: str,
        slots: str | int = 2,
        qsub: Sequence[str] = (),
        pe: str = "tensorflow",
        script: str = TF_SUBMIT,
    ) -> Job:
        """Submit `tf_submit.py WORDS...` with these options of qsub; `script` is one that runs it."""
        options = ["-pe", pe, str(slots), "-cwd", "-j", "y", *qsub]
        job_id = self.cluster.qsub(*options, script, *words, user=self.user, cwd=self.path)
        return Job(self.cluster, job_id, self.cluster.home(self.user) / self.name)
