"""How long a job takes whose tasks do nothing, next to bare qrsh and to Open MPI, in one run.

    sudo python tests/bench/start.py [ROUNDS [TASKS ...]]

"qrsh" starts as many `qrsh -inherit HOST "python3 -c 'import psutil, …'"` at once and waits for all of them,
"tf_submit" is one qrsh per task with the command `true`, "per host" the same with --per-host, "mpirun" is
Open MPI's, in the same parallel environment, with the command `sh -c 'echo up'`. Each round measures all of
them one after the other; times are medians, and ratios medians of the ratios within a round.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import _grid

import tf_submit

IMPORTS = "import psutil, json, subprocess, threading"
PAUSE = 1.0  # seconds between two measurements, for the daemons to clean up
TOO_LONG = 120  # seconds


# ---- in the job


def bare_qrsh() -> int:
    """Starts one qrsh per slot at once; the number of those that failed."""
    qrsh = str(tf_submit.find_program("qrsh", os.environ))
    words = [qrsh, "-inherit"]
    command = f'{sys.executable} -c "{IMPORTS}"'
    started = [
        subprocess.Popen([*words, host, command], stdin=subprocess.DEVNULL) for host in _grid.slot_hosts()
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


def measure(rounds: int) -> None:
    kinds = [kind for kind in KINDS if kind != "mpirun" or shutil.which("mpirun")]
    for _ in range(rounds):
        seconds = {}
        for kind in kinds:
            time.sleep(PAUSE)
            began = time.monotonic()
            if KINDS[kind]():
                sys.exit(f"{kind} failed")
            seconds[kind] = time.monotonic() - began
        print(json.dumps(seconds), flush=True)


# ---- outside


def row(tasks: int, rounds: list[dict[str, float]]) -> tuple[str, ...]:
    def time_of(kind: str) -> str:
        return f"{statistics.median(r[kind] for r in rounds):.2f}" if kind in rounds[0] else "-"

    def ratio(kind: str, base: str) -> str:
        return f"{statistics.median(r[kind] / r[base] for r in rounds):.2f}" if base in rounds[0] else "-"

    return (
        *(str(tasks), time_of("qrsh"), time_of("tf_submit"), ratio("tf_submit", "qrsh")),
        *(time_of("mpirun"), time_of("per host"), ratio("per host", "mpirun")),
    )


def main(rounds: str = "5", *sizes: str) -> None:
    if _grid.in_job():
        measure(int(rounds))
        return
    header = ("tasks", "qrsh [s]", "tf_submit [s]", "ratio", "mpirun [s]", "per host [s]", "ratio")
    tasks = [int(size) for size in sizes] or [8, 64, 200]
    with _grid.new_cluster(slots=64) as cluster:
        rows = [row(size, _grid.run_as_job(cluster, __file__, size, rounds)) for size in tasks]
    _grid.table(header, *rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
