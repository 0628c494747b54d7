"""How long a job takes whose tasks do nothing, next to bare qrsh and to Open MPI, in one run.

    sudo python tests/bench/start.py [ROUNDS [TASKS ...]]

"qrsh" starts as many `qrsh -inherit HOST "python3 -c 'import psutil, …'"` at once and waits for all of them,
"tf_submit" is one qrsh per task with the command `true`, "per host" the same with --per-host, "mpirun" is
Open MPI's (Debian: openmpi-bin), in the same parallel environment, with the command `sh -c 'echo up'`. Each
round measures all of them one after the other, on four hosts in namespaces on this machine; times are
medians, and ratios medians of the ratios within a round. With tasks that end at once mpirun hangs now and
then; such rounds count for the others only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import _grid

Round = dict[str, float]  # seconds by kind

IMPORTS = "import psutil, json, subprocess, threading"
PAUSE = 2.0  # seconds between two measurements: the qrsh of mpirun end up to a second after it
TOO_LONG = 60  # seconds


# ---- in the job


def bare_qrsh() -> int:
    """Starts one qrsh per slot at once; the number of those that failed."""
    command = f'{sys.executable} -c "{IMPORTS}"'
    started = [
        subprocess.Popen(["qrsh", "-inherit", host, command], stdin=subprocess.DEVNULL)
        for host in _grid.slot_hosts()
    ]
    return sum(process.wait() != 0 for process in started)


def run(*command: str) -> int:
    return subprocess.run(command, stdout=subprocess.DEVNULL, timeout=TOO_LONG).returncode


def run_tf_submit(*options: str) -> int:
    return run(sys.executable, _grid.TF_SUBMIT, "--ps", "0", *options, "true")


KINDS: dict[str, Callable[[], int]] = {
    "qrsh": bare_qrsh,
    "tf_submit": run_tf_submit,
    "mpirun": lambda: run("mpirun", "sh", "-c", "echo up"),
    "per host": lambda: run_tf_submit("--per-host"),
}


def measure() -> Round:
    seconds: Round = {}
    for kind, start in KINDS.items():
        if kind == "mpirun" and not shutil.which("mpirun"):
            continue
        time.sleep(PAUSE)
        began = time.monotonic()
        try:
            if start():
                sys.exit(f"{kind} failed")
            seconds[kind] = time.monotonic() - began
        except subprocess.TimeoutExpired:
            if kind != "mpirun":
                raise
    return seconds


# ---- outside


def median_time(rounds: list[Round], kind: str) -> str:
    return _grid.median([each[kind] for each in rounds if kind in each])


def median_ratio(rounds: list[Round], kind: str, base: str) -> str:
    return _grid.median([each[kind] / each[base] for each in rounds if base in each])


def row(tasks: int, rounds: list[Round]) -> tuple[str, ...]:
    return (
        str(tasks),
        *(median_time(rounds, kind) for kind in ("qrsh", "tf_submit")),
        median_ratio(rounds, "tf_submit", "qrsh"),
        *(median_time(rounds, kind) for kind in ("mpirun", "per host")),
        median_ratio(rounds, "per host", "mpirun"),
    )


def main(rounds: str = "5", *sizes: str) -> None:
    if _grid.in_job():
        for _ in range(int(rounds)):
            print(json.dumps(measure()), flush=True)
        return
    header = ("tasks", "qrsh [s]", "tf_submit [s]", "ratio", "mpirun [s]", "per host [s]", "ratio")
    with _grid.new_cluster(slots=64) as cluster:
        tasks = [int(size) for size in sizes or (8, 64, 200)]
        rows = [row(size, _grid.run_as_job(cluster, __file__, size, rounds)) for size in tasks]
    _grid.table(header, *rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
