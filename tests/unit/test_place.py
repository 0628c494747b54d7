"""From all hellos to placements: addresses, cores, GPUs of every task."""

from __future__ import annotations

import dataclasses

from hosts import job, machine, script

from tf_submit import NOT_PINNED, Hello, Options, ParallelEnvironment, cluster_spec, make_plan, place

CPUS = machine(cores=4)


def answers(plan, **found) -> list[Hello]:
    """What the agents of a plan say, with ports from 40000 on in the order of the groups' tasks."""
    ports = iter(range(40000, 50000))
    return [
        Hello(g.host, CPUS, (0, 1, 2, 3), tuple(next(ports) for _ in g.tasks), **{"address": g.host, **found})
        for g in plan.groups
    ]


def test_every_task_is_placed_in_the_order_of_the_plan():
    allocation, options = job(2, 2), Options(ps=2, spread_ps=True, per_host=True)
    plan = make_plan(allocation, ParallelEnvironment(), options)
    placements, warnings = place(plan, answers(plan), allocation, options)
    assert {name: placement.address for name, placement in placements.items()} == {
        "ps:0": "node1:40000",
        "ps:1": "node2:40002",
        "worker:0": "node1:40001",
        "worker:1": "node2:40003",
    }
    assert list(placements) == [task.name for task in plan.tasks]
    assert warnings == ()
    assert cluster_spec(placements.values()).worker_hosts == "node1:40001,node2:40003"


def test_ipv6_addresses_are_bracketed():
    allocation, options = job(2), Options()
    plan = make_plan(allocation, ParallelEnvironment(), options)
    placements, _ = place(plan, answers(plan, address="fd00::1"), allocation, options)
    assert placements["ps:0"].address == "[fd00::1]:40000"


def test_cores_and_gpus_come_together_in_a_placement():
    allocation, options = job(3), Options(bind="cores")
    plan = make_plan(allocation, ParallelEnvironment(), options)
    hellos = answers(plan, environment={"SGE_HGR_gpu": "0 1"})
    placements, _ = place(plan, hellos, allocation, options, script=script((0, 1, 2, 3)))
    assert [(p.cores, p.gpus, p.sockets, p.nodes) for p in placements.values()] == [
        ((0,), (), (0,), (0,)),
        ((1,), ("0",), (0,), (0,)),
        ((2, 3), ("1",), (0,), (0,)),
    ]


def test_column_4_of_the_master_host_alone_is_used():
    allocation, options = job(1, 1, binding=("0,3",)), Options()
    allocation = dataclasses.replace(
        allocation, hosts=tuple(dataclasses.replace(host, binding=("0,3",)) for host in allocation.hosts)
    )
    plan = make_plan(allocation, ParallelEnvironment(), options)
    placements, _ = place(plan, answers(plan), allocation, options)
    assert [placement.cores for placement in placements.values()] == [(3,), (0, 1, 2, 3)]


def test_memory_cannot_be_bound_for_tasks_that_are_not_pinned():
    allocation, options = job(2), Options(membind=True)
    plan = make_plan(allocation, ParallelEnvironment(), options)
    _, warnings = place(plan, answers(plan), allocation, options)
    assert warnings == (NOT_PINNED,)
