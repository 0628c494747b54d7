"""What the benchmarks on the test cluster have in common: programs of this folder that run as jobs.

Such a program brings the cluster up, or submits itself to one that is up, and prints a JSON object per line
when it runs as a job.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCH.parents[1]), str(BENCH.parent / "cluster")]

from gridengine import Cluster  # noqa: E402

import tf_submit  # noqa: E402

TF_SUBMIT = "/srv/tf_submit/tf_submit.py"  # on the hosts


def new_cluster(slots: int) -> Cluster:
    """Four hosts with so many slots each, not up yet."""
    venv = Path(os.environ.get("CLUSTER_VENV", sys.prefix))
    return Cluster(f"bench-{os.getpid()}", slots=slots, venv=venv)


def run_as_job(cluster: Cluster, program: str, slots: int, *arguments: object) -> list[dict[str, Any]]:
    """Runs a program of this folder as a job with so many slots; the objects that it printed."""
    path = f"/srv/tf_submit/tests/bench/{Path(program).name}"
    options = ["-pe", "tensorflow", str(slots), "-cwd", "-j", "y", "-b", "y"]
    job = cluster.qsub(*options, "python3", path, *map(str, arguments))
    [*_, record] = cluster.wait(job, timeout=900)
    output = cluster.output(job)
    if record["exit_status"] != "0":
        sys.exit(f"{program} failed as job {job} with {slots} slots:\n{output}")
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def in_job() -> bool:
    return "PE_HOSTFILE" in os.environ


def slot_hosts() -> list[str]:
    """Within a job: the host of each slot, so that neighbours are on different hosts."""
    hosts = tf_submit.read_allocation(os.environ).hosts
    turns = [(turn, number) for number, host in enumerate(hosts) for turn in range(host.slots)]
    return [hosts[number].name for _, number in sorted(turns)]


def median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else "-"


def table(*rows: tuple[str, ...]) -> None:
    """Prints rows of cells; all columns but the first hold numbers."""
    for line in tf_submit.align(rows, right=rows[0][1:]):
        print(line)
