"""What tf_submit takes for itself while tasks train: memory and CPU time of the launcher and of the agents.

    sudo python tests/bench/footprint.py [SECONDS [TASKS ...]]

The tasks print a line per second and do nothing else. "launcher" is its own process without the qrsh clients,
whose private memory (USS) is listed apart, for one of them. "agent" is the mean of those on the first host,
each with its two processes, agent and guardian. Memory is the proportional share (PSS) of
proc_pid_smaps(5): a page that two processes share counts half for each. CPU time is in percent of one core.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import _grid

import tf_submit

TASK = "exec 3<> <(:); while echo step; do read -t 1 -u 3; done"  # for bash, without a process per second
TOO_LONG = 300  # seconds


# ---- in the job


def memory(pid: int, *fields: str) -> float:
    """MiB: ``memory(pid, "Pss")``."""
    sizes = dict(re.findall(r"^(\w+): +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M))
    return sum(int(sizes[field]) for field in fields) / 1024


def cpu_time(pid: int) -> float:
    """Seconds of user and system time, proc_pid_schedstat(5)."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def processes(program: str, text: str) -> list[int]:
    """This user's processes on this host that run a program with the text on their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, *words = (folder / "cmdline").read_text().split("\0")
            if folder.stat().st_uid == os.getuid() and program in name and text in words:
                found.append(int(folder.name))
    return found


def wait_for_tasks(launcher: subprocess.Popen[bytes], tasks: int) -> None:
    """Until each has printed something."""
    end = time.monotonic() + TOO_LONG
    logs: list[Path] = []
    while len(logs) < tasks or not all(log.stat().st_size for log in logs):
        if launcher.poll() is not None or time.monotonic() > end:
            sys.exit(f"{len(logs)} of {tasks} tasks came up")
        time.sleep(0.5)
        logs = list(Path().glob(f"*.tf{os.environ['JOB_ID']}/logs/worker-*.log"))


def measure(seconds: float, options: Sequence[str]) -> dict[str, float]:
    tasks = len(_grid.slot_hosts())
    words = [*options, "-q", "--ps", "0", "--tf-config-only", "--", "bash", "-c", TASK]
    command, null = [sys.executable, _grid.TF_SUBMIT, *words], subprocess.DEVNULL
    with subprocess.Popen(command, stdout=null, stderr=null) as launcher:
        wait_for_tasks(launcher, tasks)
        agents = processes("python", tf_submit.BOOTSTRAP)
        watched = [launcher.pid, *agents]
        before = {pid: cpu_time(pid) for pid in watched}
        time.sleep(seconds)
        use = {pid: 100 * (cpu_time(pid) - before[pid]) / seconds for pid in watched}
        clients = processes("qrsh", "-inherit")
        found = {
            "tasks": tasks,
            "launcher": memory(launcher.pid, "Pss"),
            "launcher's CPU": use[launcher.pid],
            "qrsh": statistics.mean(memory(pid, "Private_Clean", "Private_Dirty") for pid in clients),
            "agent": sum(memory(pid, "Pss") for pid in agents) / (len(agents) / 2),
            "agent's CPU": sum(use[pid] for pid in agents) / (len(agents) / 2),
        }
        launcher.terminate()
    return found


# ---- outside


def row(size: str, mode: str, found: dict[str, float]) -> tuple[str, ...]:
    tasks, launcher, *others = found.values()
    return (size, mode, *(f"{figure:.2f}" for figure in (launcher, launcher / tasks, *others)))


def main(seconds: str = "60", *arguments: str) -> None:
    if _grid.in_job():
        print(json.dumps(measure(float(seconds), arguments)))
        return
    header = (
        *("tasks", "an agent", "launcher [MiB]", "per task [MiB]", "CPU [%]"),
        *("qrsh [MiB]", "agent [MiB]", "CPU [%]"),
    )
    modes = {"per task": [], "per host": ["--per-host"]}
    with _grid.new_cluster(slots=64) as cluster:
        rows = [
            row(size, mode, *_grid.run_as_job(cluster, __file__, int(size), seconds, *options))
            for size in arguments or ("8", "200")
            for mode, options in modes.items()
        ]
    _grid.table(header, *rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
