"""Hosts, jobs and agents' answers for the tests of allocation, plan and assignment."""

from __future__ import annotations

from pathlib import Path

from tf_submit import Allocation, Cpu, Group, Hello, Host, Task

FIXTURES = Path(__file__).parent.parent / "fixtures"


def job(*slots: int, **first_host: object) -> Allocation:
    """``job(2, 1)`` has two slots on node1, the master host, and one on node2."""
    hosts = [Host(f"node{n}", count) for n, count in enumerate(slots, start=1)]
    hosts[0] = Host("node1", slots[0], **first_host)  # type: ignore[arg-type]
    return Allocation("17", "train", tuple(hosts))


def machine(sockets: int = 1, cores: int = 4, threads: int = 1, nodes: int = 1) -> tuple[Cpu, ...]:
    """A host with so many sockets, cores per socket, hardware threads per core, NUMA nodes per socket.

    The numbers are Linux's usual ones: all first threads of the cores come before the second threads.
    """
    return tuple(
        Cpu(
            number=(thread * sockets + socket) * cores + core,
            socket=socket,
            core=core,
            node=socket * nodes + core * nodes // cores,
        )
        for thread in range(threads)
        for socket in range(sockets)
        for core in range(cores)
    )


def task(name: str, host: str = "node1", slots: int = 1) -> Task:
    """``task("worker:1", "node2")``"""
    role, index = name.split(":")
    return Task(role, int(index), host, slots)


def agent(
    names: str,
    cpus: tuple[Cpu, ...],
    mask: tuple[int, ...] | None = None,
    host: str = "node1",
    slots: int = 1,
    leases: tuple[tuple[str, ...], ...] = (),
    **environment: str,
) -> tuple[Group, Hello]:
    """The agent of the tasks ``names`` and what it found: ``mask`` None means that it may use all CPUs."""
    tasks = tuple(task(name, host, slots) for name in names.split())
    found = tuple(sorted(cpu.number for cpu in cpus)) if mask is None else mask
    ports = tuple(range(2222, 2222 + len(tasks)))
    return Group(host, tasks), Hello(host, cpus, found, ports, host, environment, leases)


def script(mask: tuple[int, ...], **environment: str) -> Hello:
    """What the waiting job script found for itself on the master host."""
    return Hello("node1", (), mask, environment=environment)


def captured_environment(name: str) -> dict[str, str]:
    """The environment in a file of FIXTURES, e.g. "ocs-two-hosts-gpu/env.master"."""
    lines = (FIXTURES / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)
