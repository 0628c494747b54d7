"""The CPUs of a host, as the kernel lists them in /sys/devices/system (sysfs-devices-system-cpu)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tf_submit import parse_ranges, topology


def write(root: Path, **files: object) -> None:
    """``write(root, cpu__online="0-3")`` makes the file cpu/online."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def write_cpu(root: Path, cpu: int, socket: int, core_id: int, siblings: str) -> None:
    write(
        root / f"cpu/cpu{cpu}/topology",
        physical_package_id=socket,
        core_id=core_id,
        thread_siblings_list=siblings,
    )


def test_two_sockets_with_hardware_threads_and_numa_nodes(tmp_path):
    """Four cores with CPUs n and n + 4, whose core ids have holes and are the same in both sockets."""
    write(tmp_path, cpu__online="0-7", node__online="0-1", node__node0__cpulist="0-1,4-5")
    write(tmp_path, node__node1__cpulist="2-3,6-7")
    for cpu in range(8):
        core = cpu % 4
        write_cpu(tmp_path, cpu, socket=core // 2, core_id=(0, 9)[core % 2], siblings=f"{core},{core + 4}")
    assert topology(str(tmp_path)) == [
        (0, 0, 0, 0),
        (1, 0, 1, 0),
        (2, 1, 2, 1),
        (3, 1, 3, 1),
        (4, 0, 0, 0),
        (5, 0, 1, 0),
        (6, 1, 2, 1),
        (7, 1, 3, 1),
    ]


def test_cores_of_two_dies_with_the_same_core_id_are_two(tmp_path):
    write(tmp_path, cpu__online="0-1")
    for cpu in (0, 1):
        write_cpu(tmp_path, cpu, socket=0, core_id=0, siblings=str(cpu))
    assert topology(str(tmp_path)) == [(0, 0, 0, 0), (1, 0, 1, 0)]


def test_neighbours_can_be_hardware_threads_of_one_core(tmp_path):
    write(tmp_path, cpu__online="0-3")
    for cpu in range(4):
        write_cpu(tmp_path, cpu, socket=0, core_id=cpu // 2, siblings=("0-1", "2-3")[cpu // 2])
    assert [core for _, _, core, _ in topology(str(tmp_path))] == [0, 0, 2, 2]


def test_cpus_that_are_offline_are_not_there(tmp_path):
    """CPU 1 is off, and its sibling 3 is alone on their core."""
    write(tmp_path, cpu__online="0,2-3", node__online="0", node__node0__cpulist="0,2-3")
    for cpu, siblings in ((0, "0,2"), (2, "0,2"), (3, "3")):
        write_cpu(tmp_path, cpu, socket=0, core_id=cpu % 2, siblings=siblings)
    assert topology(str(tmp_path)) == [(0, 0, 0, 0), (2, 0, 0, 0), (3, 0, 3, 0)]


def test_numa_nodes_can_have_holes_and_no_cpus(tmp_path):
    write(tmp_path, cpu__online="0-1", node__online="0,2,8", node__node0__cpulist="0")
    write(tmp_path, node__node2__cpulist="", node__node8__cpulist="1")
    assert [node for *_, node in topology(str(tmp_path))] == [0, 8]


def test_a_kernel_that_does_not_know_the_socket_has_one(tmp_path):
    write(tmp_path, cpu__online="0")
    write_cpu(tmp_path, 0, socket=-1, core_id=-1, siblings="0")
    assert topology(str(tmp_path)) == [(0, 0, 0, 0)]


def test_without_topology_files_each_cpu_is_a_core_of_one_socket(tmp_path):
    write(tmp_path, cpu__online="0-1,5")
    assert topology(str(tmp_path)) == [(0, 0, 0, 0), (1, 0, 1, 0), (5, 0, 5, 0)]


def test_without_sys_there_are_the_cpus_that_this_process_may_use(tmp_path):
    assert [cpu for cpu, *_ in topology(str(tmp_path / "none"))] == sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", [0]), ("0-2,8", [0, 1, 2, 8]), ("0-1,4-5\n", [0, 1, 4, 5]), ("", []), ("\n", [])],
)
def test_kernel_lists_are_read(text, numbers):
    assert parse_ranges(text) == numbers
