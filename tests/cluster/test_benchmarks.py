"""The benchmarks work; what they measure is no matter of tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gridengine import Cluster

BENCH = Path(__file__).parents[1] / "bench"
sys.path.append(str(BENCH))

import _grid  # noqa: E402


@pytest.mark.parametrize(
    ("program", "arguments", "found"),
    [
        ("start.py", [1], {"qrsh", "tf_submit", "per host"}),
        ("throughput.py", [1, 5], {"qrsh", "tf_submit", "delay", "memory"}),
        ("footprint.py", [1], {"tasks", "launcher", "agent"}),
    ],
)
def test_benchmarks_on_a_cluster(
    cluster: Cluster, program: str, arguments: list[int], found: set[str]
) -> None:
    [figures] = _grid.run_as_job(cluster, program, 2, *arguments)
    assert found <= figures.keys()
    assert all(figures[name] >= 0 for name in found)


def test_the_benchmark_of_sizes() -> None:
    done = subprocess.run([sys.executable, BENCH / "size.py", "1", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if "#" in line] == ["28", "56"] * 2
