"""GPUs without ids: each is leased by one agent, for as long as that lives."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hosts import task

import tf_submit
from tf_submit import Group, Options, are_gpus_given, greeting, lease_gpus, visible_gpus

HOLD = """
import sys; sys.path.insert(0, sys.argv[1])
import tf_submit; tf_submit.LEASES = sys.argv[2]
print(tf_submit.lease(sys.argv[3]) is not None, flush=True); sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The folder of the leases, on a host with three GPUs."""
    monkeypatch.setattr(tf_submit, "LEASES", str(tmp_path / "leases"))
    monkeypatch.setattr(tf_submit, "visible_gpus", lambda: ["0", "1", "2"])
    return tmp_path / "leases"


def other_agent(folder: Path, device: str) -> subprocess.Popen[str]:
    """Another process that has leased a device."""
    checkout = str(Path(tf_submit.__file__).parent)
    command = [sys.executable, "-c", HOLD, checkout, str(folder), device]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "True\n"
    return process


def test_each_task_has_as_many_as_it_wants_and_none_twice(folder):
    assert lease_gpus([0, 1, 2]) == [[], ["0"], ["1", "2"]]


def test_when_all_are_taken_there_are_fewer(folder):
    assert lease_gpus([2, 2]) == [["0", "1"], ["2"]]
    assert lease_gpus([1]) == [[]]


def test_who_wants_none_leaves_no_trace(folder):
    assert lease_gpus([0, 0]) == [[], []]
    assert not folder.exists()


def test_a_killed_process_frees_its_devices_at_once(folder):
    lease_gpus([1])
    other = other_agent(folder, "1")
    assert lease_gpus([1]) == [["2"]]
    other.kill()
    other.communicate()
    assert lease_gpus([1]) == [["1"]]


def test_the_folder_is_open_to_all_users_and_each_file_its_owners(folder):
    before = os.umask(0o077)
    lease_gpus([1])
    assert os.umask(before) == 0o077
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / "0").stat().st_mode) == 0o666


def test_the_folder_is_locked_so_that_systemd_tmpfiles_leaves_it_alone(folder):
    lease_gpus([1])
    with pytest.raises(BlockingIOError):
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("environ", "given"),
    [
        ({}, False),
        ({"SGE_HGR_gpu": "0 1"}, True),
        ({"SGE_HGR_gpu": "2.000000"}, False),
        ({"SGE_HGR_gpu": "NONE"}, False),
        ({"SGE_HGR_fpga": "0"}, False),
        ({"CUDA_VISIBLE_DEVICES": "1"}, True),
        ({"CUDA_VISIBLE_DEVICES": ""}, True),
    ],
)
def test_nothing_is_leased_where_scheduler_or_site_have_given_ids(environ, given):
    assert are_gpus_given(environ, "gpu") == given


def test_nothing_is_leased_for_a_ps_nor_where_a_prolog_chose_gpus_for_the_job_script():
    options, prolog = Options(gpus_per_task=2), {"CUDA_VISIBLE_DEVICES": "1"}

    def wanted(host: str, environ: dict[str, str]) -> list[int]:
        group = Group(host, (task("ps:0", host), task("worker:0", host)))
        return greeting(group, options, ("node1", 40000), environ)["gpus"]

    assert wanted("node1", {}) == [0, 2]
    assert wanted("node1", prolog) == [0, 0]
    assert wanted("node2", prolog) == [0, 2]


def nvml(*used: bool, fault: Exception | None = None) -> SimpleNamespace:
    """The module of nvidia-ml-py on a host with so many GPUs, and whether a process uses each."""

    def processes(device: int) -> list[str]:
        if fault:
            raise fault
        return ["a process"] if used[device] else []

    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: len(used),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetComputeRunningProcesses=processes,
    )


@pytest.mark.parametrize(
    ("module", "numbers"),
    [
        (nvml(True, False, False), ["1", "2"]),
        (nvml(), []),
        (nvml(True, False, fault=RuntimeError("not supported")), ["0", "1"]),
        (None, ["0", "1"]),
    ],
    ids=["one in use", "no GPU", "an NVML that fails", "no NVML"],
)
def test_gpus_are_those_that_nvml_finds_unused_or_else_the_device_files(monkeypatch, module, numbers):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    files = {"/dev/nvidia[0-9]*": ["/dev/nvidia1", "/dev/nvidia0"]}
    monkeypatch.setattr(tf_submit.glob, "glob", files.__getitem__)
    assert visible_gpus() == numbers
