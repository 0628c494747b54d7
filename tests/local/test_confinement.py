"""The CPUs and NUMA nodes of a task on this machine, as the kernel has them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

import tf_submit
from tf_submit import confined, topology

NUMA_NODES = sorted({node for *_, node in topology()})
needs_numa = pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="a kernel without NUMA")


def child(script: str) -> str:
    """What a line of shell prints, run in a process that is started now."""
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout


def memory_policy() -> str:
    """Of a process that is started now: "default", or "bind:0-1"."""
    return child("cut -d' ' -f2 /proc/self/numa_maps").split()[0]


def groups(ids: Iterable[tuple[int, object]]) -> set[frozenset[int]]:
    """The CPUs that have the same id."""
    found = defaultdict(set)
    for cpu, id_ in ids:
        found[id_].add(cpu)
    return {frozenset(cpus) for cpus in found.values()}


def test_a_process_is_on_its_cpus_alone():
    last = max(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    with confined([last], []):
        assert child("grep Cpus_allowed_list /proc/self/status").split() == ["Cpus_allowed_list:", str(last)]
    assert os.sched_getaffinity(0) == before


def test_cpus_that_do_not_exist_are_an_error_and_this_process_keeps_its_own():
    before = os.sched_getaffinity(0)
    with pytest.raises(OSError), confined([4095], []):
        pass
    assert os.sched_getaffinity(0) == before


@needs_numa
def test_a_process_has_its_memory_on_its_numa_nodes_alone():
    with confined(None, NUMA_NODES[:1]) as trouble:
        assert (trouble, memory_policy()) == ("", f"bind:{NUMA_NODES[0]}")
    assert memory_policy() == "default"


@needs_numa
def test_memory_on_numa_nodes_that_do_not_exist_is_told_and_the_process_runs_all_the_same():
    with confined(None, [NUMA_NODES[-1] + 1]) as trouble:
        assert (trouble, memory_policy()) == ("set_mempolicy: Invalid argument", "default")


def test_a_kernel_without_the_system_call_is_told(monkeypatch):
    monkeypatch.setattr(tf_submit, "SET_MEMPOLICY", {})
    with confined(None, [0]) as trouble:
        assert (trouble, child("echo runs")) == ("set_mempolicy: Function not implemented", "runs\n")


def test_a_job_whose_memory_cannot_be_bound_runs_with_a_warning_for_the_host(tmp_path):
    text, changed = re.subn(
        "SET_MEMPOLICY = {.*}", "SET_MEMPOLICY = {}", Path(tf_submit.__file__).read_text()
    )
    assert changed == 1
    (tmp_path / "tf_submit.py").write_text(text)
    options = ["--local", "2", "--ps", "0", "--bind", "cores", "--membind", "echo", "runs"]
    command = [sys.executable, "tf_submit.py", *options]
    job = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert job.returncode == 0
    assert job.stdout.count("| runs ") == 2
    warning = (
        "localhost: memory is not bound to NUMA nodes (--membind): set_mempolicy: Function not implemented"
    )
    assert job.stderr.count(warning) == 1


@pytest.mark.skipif(not shutil.which("lscpu"), reason="no lscpu")
def test_sockets_cores_and_numa_nodes_are_those_of_lscpu():
    lines = child("lscpu --parse=CPU,SOCKET,CORE,NODE | grep -v '^#'").splitlines()
    listed = [[int(number or 0) for number in line.split(",")] for line in lines]
    for column in (1, 2, 3):
        assert groups((cpu[0], cpu[column]) for cpu in topology()) == groups(
            (cpu[0], cpu[column]) for cpu in listed
        )
