"""Every task on its own cores, on every flavour of Grid Engine.

A case gives what the agents of a job found; its placement is written as CPU numbers by task.
"""

from __future__ import annotations

import pytest
from hosts import agent, captured_environment, machine, script
from hypothesis import given
from hypothesis import strategies as st

from tf_submit import (
    CROWDED,
    UNBOUND,
    Cpu,
    Host,
    assign_cores,
    cpus_bound,
    parse_binding,
    parse_cpuset,
)

TWO_CORES = machine(cores=2)
FOUR_CORES = machine(cores=4)
SMT = machine(cores=4, threads=2)  # CPUs 0 and 4 are one core, 1 and 5 the next, …
TWO_SOCKETS = machine(sockets=2, cores=4)


def assign(*agents, **how):
    """Placements and warnings of agents, grouped by host as ``place`` does."""
    by_host: dict = {}
    for group, hello in agents:
        by_host.setdefault(group.host, []).append((group, hello))
    master = Host(how.pop("master", "node1"), 1, binding=how.pop("column_4", ()))
    return assign_cores(by_host, master, **how)


def cores(*agents, **how) -> dict[str, tuple[int, ...] | None]:
    """CPUs by task, of a case that must not give any warning."""
    placements, warnings = assign(*agents, **how)
    assert warnings == ()
    return {name: placement.cores for name, placement in placements.items()}


def threads(*agents, **how) -> dict[str, int]:
    return {name: placement.threads for name, placement in assign(*agents, **how)[0].items()}


# ---- Son of Grid Engine


def test_set_mode_leaves_distinct_masks_as_they_are():
    assert cores(
        agent("ps:0", FOUR_CORES, (1,), SGE_BINDING="1"),
        agent("worker:0", FOUR_CORES, (2,), SGE_BINDING="2"),
        agent("worker:1", FOUR_CORES, (3,), SGE_BINDING="3"),
        script=script((0,), SGE_BINDING="0"),
    ) == {"ps:0": (1,), "worker:0": (2,), "worker:1": (3,)}


def test_set_mode_a_task_left_unbound_takes_the_core_of_the_waiting_job_script():
    """The capture: two cores and two slots; the script holds core 0, one task core 1, one is unbound."""

    def captured(file: str, name: str, host: str, *mask: int):
        return agent(name, TWO_CORES, mask, host, **captured_environment(f"sge-binding-linear-1/{file}"))

    assert cores(
        captured("env.task.1.node3", "ps:0", "node3", 0, 1),
        captured("env.task.2.node3", "worker:0", "node3", 1),
        captured("env.task.3.node4", "worker:1", "node4", 0),
        captured("env.task.4.node1", "worker:2", "node1", 0),
        captured("env.task.5.node2", "worker:3", "node2", 0),
        master="node3",
        script=script((0,), **captured_environment("sge-binding-linear-1/env.master")),
    ) == {"ps:0": (0,), "worker:0": (1,), "worker:1": (0,), "worker:2": (0,), "worker:3": (0,)}


def test_set_mode_an_unbound_task_keeps_off_the_cores_of_other_jobs():
    """The cores ran out, so all but the siblings' and the script's may be another job's."""
    assert cores(
        agent("ps:0", machine(cores=8), (1,)),
        agent("worker:0", machine(cores=8)),
        script=script((0,)),
    ) == {"ps:0": (1,), "worker:0": (0,)}


def test_set_mode_more_unbound_tasks_than_the_script_has_cores_divide_what_the_siblings_leave():
    placements, warnings = assign(
        agent("ps:0", FOUR_CORES, (1,)),
        agent("worker:0", FOUR_CORES),
        agent("worker:1", FOUR_CORES),
        script=script((0,)),
    )
    assert placements["worker:0"].cores == (0,)
    assert placements["worker:1"].cores == (2, 3)
    assert placements["worker:1"].threads == 1
    assert warnings == (UNBOUND + "node1 (3 cores for worker:0, worker:1)",)


def test_set_mode_with_two_cores_for_each_process():
    assert cores(
        agent("ps:0", machine(cores=6), (2, 3), SGE_BINDING="2 3"),
        agent("worker:0", machine(cores=6), (4, 5), SGE_BINDING="4 5"),
        script=script((0, 1)),
    ) == {"ps:0": (2, 3), "worker:0": (4, 5)}


def test_linear_slots_an_agent_of_the_whole_host_takes_the_cores_of_the_job_script():
    """The script has all the slots' cores, so the agent on the master host is left unbound."""
    assert cores(
        agent("ps:0 worker:0", FOUR_CORES),
        agent("worker:1 worker:2", FOUR_CORES, (2, 3), host="node2"),
        script=script((1, 2)),
    ) == {"ps:0": (1,), "worker:0": (2,), "worker:1": (2,), "worker:2": (3,)}


def test_linear_slots_the_job_script_may_hold_the_whole_host():
    """Seen on hosts of two cores: the script's mask is as wide as the others, but SGE_BINDING tells."""
    agents = [agent("ps:0", TWO_CORES), agent("worker:0", TWO_CORES)]
    assert cores(*agents, script=script((0, 1), SGE_BINDING="0 1")) == {"ps:0": (0,), "worker:0": (1,)}


def test_a_local_agent_beside_qrsh_tasks_has_the_cores_of_the_script():
    assert cores(
        agent("ps:0", FOUR_CORES, (0,)), agent("worker:0", FOUR_CORES, (1,)), script=script((0,))
    ) == {"ps:0": (0,), "worker:0": (1,)}


def test_striding_gives_one_core_to_every_process_so_they_share_it_with_a_warning():
    placements, warnings = assign(
        agent("ps:0", FOUR_CORES, (0,)), agent("worker:0", FOUR_CORES, (0,)), script=script((0,))
    )
    assert {placement.cores for placement in placements.values()} == {(0,)}
    assert warnings == (CROWDED + "node1 (1 core for ps:0, worker:0)",)


def test_env_mode_the_mask_is_wide_and_sge_binding_tells_the_cores():
    assert cores(
        agent("ps:0", FOUR_CORES, SGE_BINDING="0"), agent("worker:0", FOUR_CORES, SGE_BINDING="2 3")
    ) == {"ps:0": (0,), "worker:0": (2, 3)}


def test_env_mode_of_8_1_9_tells_nothing_so_nothing_is_pinned():
    agents = [agent("ps:0", TWO_CORES, SGE_BINDING=""), agent("worker:0", TWO_CORES, SGE_BINDING="")]
    assert cores(*agents, script=script((0, 1), SGE_BINDING="")) == {"ps:0": None, "worker:0": None}


@pytest.mark.parametrize(
    "column_4", ["0,1:0,2", "0:1,0:2"], ids=["Son of Grid Engine", "Open Cluster Scheduler"]
)
def test_pe_mode_column_4_narrows_the_wide_masks_of_the_master_host(column_4):
    assert cores(
        agent("ps:0", FOUR_CORES),
        agent("worker:0", FOUR_CORES),
        column_4=(column_4,),
        script=script((0, 1, 2, 3)),
    ) == {"ps:0": (1,), "worker:0": (2,)}


def test_pe_mode_column_4_is_a_guess_on_other_hosts_whose_tasks_divide_the_host():
    """Here the other host does not even have the cores that are named."""
    placements, warnings = assign(
        agent("ps:0", machine(cores=8)),
        agent("worker:0", TWO_CORES, host="node2"),
        agent("worker:1", TWO_CORES, host="node2"),
        column_4=("0,6:0,7",),
    )
    assert {name: placement.cores for name, placement in placements.items()} == {
        "ps:0": (6, 7),
        "worker:0": (0,),
        "worker:1": (1,),
    }
    assert warnings == (UNBOUND + "node2 (2 cores for worker:0, worker:1)",)


def test_pe_mode_all_hardware_threads_of_a_named_core_belong_to_it():
    assert cores(agent("worker:0", SMT), column_4=("0,2",)) == {"worker:0": (2, 6)}


def test_column_4_counts_sockets_and_cores_logically_whatever_linux_calls_them():
    holes = (Cpu(0, 7, 10, 0), Cpu(1, 3, 10, 0), Cpu(2, 7, 42, 0), Cpu(3, 3, 42, 0))
    assert cores(agent("worker:0", holes), column_4=("1,1",)) == {"worker:0": (3,)}


def test_column_4_counts_the_cores_of_a_socket_numa_node_by_numa_node():
    interleaved = tuple(Cpu(number, 0, number, number % 2) for number in range(4))
    assert cores(agent("worker:0", interleaved), column_4=("0,1",)) == {"worker:0": (2,)}


def test_column_4_does_not_touch_a_mask_that_is_narrow_already():
    assert cores(agent("worker:0", FOUR_CORES, (1, 2)), column_4=("0,0:0,1",)) == {"worker:0": (1, 2)}


def test_column_4_never_widens_a_mask():
    assert cores(agent("worker:0", FOUR_CORES, (3,)), column_4=("0,0:0,1",)) == {"worker:0": (3,)}


@pytest.mark.parametrize(
    "column_4", ["UNDEFINED", "<NULL>", "<nullptr>", "0-3,8", "0-1", "9,9", "0,0:x,1", "NONE"]
)
def test_column_4_without_cores_of_this_host_is_no_binding_request(column_4):
    assert cores(agent("ps:0", FOUR_CORES), column_4=(column_4,)) == {"ps:0": None}


# ---- Open Cluster Scheduler


def test_one_mask_for_all_tasks_of_a_host_is_split():
    found = {"SGE_BINDING_CPUSET": "0x0000000f", "SGE_BINDING_TOPOLOGY": "ScccCCCCC"}
    agents = [agent(name, machine(cores=8), (0, 1, 2, 3), **found) for name in ("ps:0", "worker:0")]
    assert cores(*agents, script=script((0, 1, 2, 3), **found)) == {"ps:0": (0, 1), "worker:0": (2, 3)}


def test_a_mask_of_the_whole_host_is_split_as_well_if_it_was_granted():
    agents = [agent(name, FOUR_CORES, SGE_BINDING_CPUSET="0xf") for name in ("ps:0", "worker:0")]
    assert cores(*agents) == {"ps:0": (0, 1), "worker:0": (2, 3)}
    assert threads(*agents) == {"ps:0": 2, "worker:0": 2}


def test_env_instance_the_cpuset_narrows_a_wide_mask():
    agents = [agent(name, FOUR_CORES, SGE_BINDING_CPUSET="0xa") for name in ("ps:0", "worker:0")]
    assert cores(*agents) == {"ps:0": (1,), "worker:0": (3,)}


def test_without_a_request_the_cpuset_is_empty_and_nothing_is_pinned():
    found = {"SGE_BINDING_CPUSET": "0x0", "SGE_BINDING_TOPOLOGY": "NONE"}
    assert cores(agent("ps:0", FOUR_CORES, **found)) == {"ps:0": None}


def test_the_capture_of_two_hosts_with_one_core_each():
    environment = {
        k: v for k, v in captured_environment("ocs-two-hosts-gpu/env.task.ocs1").items() if "BIND" in k
    }
    agents = [
        agent(name, TWO_CORES, (0,), host, **environment) for name, host in (("ps:0", "a"), ("worker:0", "b"))
    ]
    assert cores(*agents) == {"ps:0": (0,), "worker:0": (0,)}


# ---- whatever narrowed the mask


def test_a_mask_narrowed_by_a_cgroup_is_split_without_any_variable():
    agents = [agent(name, machine(cores=8), (2, 3, 4, 5)) for name in ("ps:0", "worker:0")]
    assert cores(*agents) == {"ps:0": (2, 3), "worker:0": (4, 5)}


def test_a_variable_that_contradicts_the_mask_does_not_count():
    assert cores(agent("worker:0", FOUR_CORES, (2,), SGE_BINDING="0")) == {"worker:0": (2,)}


def test_overlapping_masks_are_made_disjoint():
    agents = [agent("ps:0", FOUR_CORES, (0, 1)), agent("worker:0", FOUR_CORES, (1, 2))]
    assert cores(*agents) == {"ps:0": (0, 1), "worker:0": (2,)}


def test_tasks_of_one_agent_split_its_mask():
    assert cores(agent("ps:0 worker:0", FOUR_CORES, (2, 3))) == {"ps:0": (2,), "worker:0": (3,)}


def test_more_cores_than_slots_are_all_used_and_threads_follow():
    agents = [agent(name, machine(cores=8), tuple(range(7))) for name in ("ps:0", "worker:0")]
    assert cores(*agents) == {"ps:0": (0, 1, 2), "worker:0": (3, 4, 5, 6)}
    assert threads(*agents) == {"ps:0": 3, "worker:0": 4}


def test_fewer_cores_than_tasks_workers_keep_apart_and_the_ps_floats():
    placements, warnings = assign(agent("ps:0 worker:0 worker:1", FOUR_CORES, (0, 1)))
    assert {name: p.cores for name, p in placements.items()} == {
        "ps:0": (0, 1),
        "worker:0": (0,),
        "worker:1": (1,),
    }
    assert {p.threads for p in placements.values()} == {1}
    assert warnings == (CROWDED + "node1 (2 cores for ps:0, worker:0, worker:1)",)


def test_far_fewer_cores_than_tasks_workers_take_turns():
    placements, warnings = assign(agent("worker:0 worker:1 worker:2", FOUR_CORES, (0, 1)))
    assert [placement.cores for placement in placements.values()] == [(0,), (1,), (0,)]
    assert warnings == (CROWDED + "node1 (2 cores for worker:0, worker:1, worker:2)",)


def test_warnings_about_many_hosts_are_one_line():
    crowds = [agent("worker:0 worker:1", FOUR_CORES, (0,), host=f"node{n}") for n in range(1, 301)]
    (warning,) = assign(*crowds)[1]
    assert (
        warning.startswith(CROWDED + "node1 (1 core for worker:0, worker:1), node2") and "292 more" in warning
    )


# ---- physical cores, sockets, NUMA nodes


def test_hardware_threads_of_a_core_stay_together():
    agents = [agent(name, SMT, (0, 1, 4, 5)) for name in ("ps:0", "worker:0")]
    assert cores(*agents) == {"ps:0": (0, 4), "worker:0": (1, 5)}
    assert threads(*agents) == {"ps:0": 1, "worker:0": 1}


def test_hardware_threads_are_split_before_cpus_are_shared():
    placements, warnings = assign(agent("ps:0 worker:0", SMT, (1, 5)))
    assert {name: placement.cores for name, placement in placements.items()} == {
        "ps:0": (1,),
        "worker:0": (5,),
    }
    assert warnings == (CROWDED + "node1 (1 core for ps:0, worker:0)",)


def placed(names: str, cpus: tuple[Cpu, ...]):
    """The placements of tasks that divide a whole host."""
    return list(assign(agent(names, cpus), bind="cores")[0].values())


def test_a_task_has_its_cores_in_one_socket_where_that_costs_it_nothing():
    """Eight cores for three tasks: two and two cores in one socket, four in the other."""
    found = placed("ps:0 worker:0 worker:1", TWO_SOCKETS)
    assert [placement.cores for placement in found] == [(0, 1), (2, 3), (4, 5, 6, 7)]
    assert [placement.sockets for placement in found] == [(0,), (0,), (1,)]


def test_a_task_crosses_sockets_rather_than_getting_less_than_its_share():
    found = placed("ps:0 worker:0 worker:1", machine(sockets=2, cores=5))
    assert [placement.cores for placement in found] == [(0, 1, 2), (3, 4, 5), (6, 7, 8, 9)]
    assert found[1].sockets == (0, 1)


def test_a_task_has_its_cores_in_one_numa_node_where_that_costs_it_nothing():
    found = placed("ps:0 worker:0 worker:1 worker:2", machine(sockets=2, cores=4, nodes=2))
    assert [placement.nodes for placement in found] == [(0,), (1,), (2,), (3,)]
    assert [placement.cores for placement in found] == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_numa_nodes_of_one_socket_are_kept_apart_too():
    found = placed("ps:0 worker:0 worker:1", machine(cores=8, nodes=2))
    assert [placement.cores for placement in found] == [(0, 1), (2, 3), (4, 5, 6, 7)]


def test_numa_nodes_are_crossed_before_sockets_are():
    found = placed("ps:0 worker:0", machine(sockets=2, cores=4, nodes=2))
    assert [placement.nodes for placement in found] == [(0, 1), (2, 3)]
    assert [placement.sockets for placement in found] == [(0,), (1,)]


def test_holes_in_core_ids_and_interleaved_sockets_do_no_harm():
    cpus = tuple(Cpu(n, n % 2, (0, 1, 8, 9)[n // 2], n % 2) for n in range(8))
    found = placed("ps:0 worker:0", cpus)
    assert [placement.cores for placement in found] == [(0, 2, 4, 6), (1, 3, 5, 7)]


def test_a_host_without_topology_is_split_by_its_cpus():
    assert cores(agent("ps:0 worker:0", (), (2, 3)), bind="cores") == {"ps:0": (2,), "worker:0": (3,)}


# ---- --bind


def test_without_a_request_nothing_is_pinned_and_threads_follow_the_slots():
    found = agent("ps:0 worker:0", FOUR_CORES, slots=2)
    assert cores(found) == {"ps:0": None, "worker:0": None}
    assert threads(found) == {"ps:0": 2, "worker:0": 2}


def test_bind_cores_pins_without_a_request_and_threads_still_follow_the_slots():
    found = agent("ps:0 worker:0", machine(cores=8))
    assert cores(found, bind="cores") == {"ps:0": (0, 1, 2, 3), "worker:0": (4, 5, 6, 7)}
    assert threads(found, bind="cores") == {"ps:0": 1, "worker:0": 1}


def test_bind_none_pins_nothing_but_threads_follow_the_cores_there_would_be():
    found = agent("ps:0 worker:0", machine(cores=8), (0, 1, 2, 3))
    assert cores(found, bind="none") == {"ps:0": None, "worker:0": None}
    assert threads(found, bind="none") == {"ps:0": 2, "worker:0": 2}


# ---- what always holds


@st.composite
def found_hosts(draw):
    """Agents on up to three hosts whose masks are distinct, shared, narrow, wide or anything."""
    agents, number = [], 0
    for host in [f"node{n}" for n in range(1, draw(st.integers(1, 3)) + 1)]:
        cpus = machine(*(draw(st.integers(1, most)) for most in (2, 4, 2, 2)))
        numbers = st.sets(st.sampled_from([cpu.number for cpu in cpus]), min_size=1).map(sorted).map(tuple)
        common = draw(numbers)
        for _ in range(draw(st.integers(1, 4))):
            mask = draw(st.sampled_from([common, None]) | numbers)
            names = [
                f"{draw(st.sampled_from(['ps', 'worker']))}:{number + n}"
                for n in range(draw(st.integers(1, 2)))
            ]
            number += len(names)
            binding = draw(st.sampled_from([{}, {"SGE_BINDING": "0"}, {"SGE_BINDING_CPUSET": "0x3"}]))
            agents.append(agent(" ".join(names), cpus, mask, host, **binding))
    return agents


HOW = st.fixed_dictionaries(
    {
        "bind": st.sampled_from(["auto", "cores", "none"]),
        "script": st.none()
        | st.sets(st.integers(0, 15), min_size=1).map(lambda mask: script(tuple(sorted(mask)))),
        "column_4": st.sampled_from([(), ("0,0",), ("0:0,0:1",)]),
    }
)


@given(found_hosts(), HOW)
def test_tasks_are_disjoint_unless_warned_and_keep_to_the_masks_that_were_found(agents, how):
    placements, warnings = assign(*agents, **how)
    assert placements.keys() == {task.name for group, _ in agents for task in group.tasks}
    seen: set = set()
    for group, hello in agents:
        for placement in (placements[task.name] for task in group.tasks):
            assert placement.threads >= 1
            assert placement.cores is None or placement.cores
            held = {(group.host, cpu) for cpu in placement.cores or ()}
            assert held <= {(group.host, cpu) for cpu in hello.mask}
            assert not held & seen or any(
                CROWDED in warning and group.host in warning for warning in warnings
            )
            seen |= held


@given(found_hosts(), HOW)
def test_the_same_answers_give_the_same_placement(agents, how):
    assert assign(*agents, **how) == assign(*agents, **how)


@given(found_hosts(), HOW)
def test_all_tasks_of_a_job_are_pinned_or_none(agents, how):
    placements, warnings = assign(*agents, **how)
    assert len({placement.cores is None for placement in placements.values()}) == 1
    if how["bind"] != "auto":
        assert all((placement.cores is None) == (how["bind"] == "none") for placement in placements.values())
    assert not warnings or placements.popitem()[1].cores


@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 8), st.integers(1, 2), st.integers(1, 2)),
    count=st.integers(1, 16),
)
def test_a_host_is_divided_by_whole_cores_and_nobody_gets_less_than_a_fair_share(shape, count):
    cpus = machine(*shape)
    placements = placed(" ".join(f"worker:{n}" for n in range(count)), cpus)
    if count > shape[0] * shape[1]:
        return
    owner = {cpu: placement.task for placement in placements for cpu in placement.cores}
    for cpu in cpus:
        siblings = [other.number for other in cpus if (other.socket, other.core) == (cpu.socket, cpu.core)]
        assert len({owner.get(sibling) for sibling in siblings}) == 1
    fair = shape[0] * shape[1] // count
    assert min(len(placement.cores) for placement in placements) >= fair * shape[2]
    assert len(cpus) - len(owner) < count * shape[2]  # cores of a NUMA node that is too small stay idle


# ---- the strings


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0x00000001", {0}),
        ("0xf", {0, 1, 2, 3}),
        ("0x00000001,0x00000000", {32}),
        ("0x00000003,,0x1", {64, 65, 0}),
        ("0x80000000,0x00000000,0x00000000,0x00000001", {127, 0}),
        ("0x10000000000000000000000000000000", {124}),
        ("0x0", set()),
        ("", set()),
        ("0xf...f", set()),
        ("ScC", set()),
    ],
)
def test_bitmaps_of_any_size_are_read(text, cpus):
    assert {number for number in range(200) if parse_cpuset(text) >> number & 1} == cpus


def test_a_bitmap_of_more_than_64_cpus_binds_tasks():
    agents = [
        agent(name, machine(sockets=2, cores=64), SGE_BINDING_CPUSET="0xc,,0x0,0x0")
        for name in ("ps:0", "worker:0")
    ]
    assert cores(*agents) == {"ps:0": (98,), "worker:0": (99,)}


@given(st.sets(st.integers(0, 300)))
def test_what_hwloc_would_write_is_read_back(numbers):
    bitmap = sum(1 << number for number in numbers)
    words = [f"0x{bitmap >> 32 * word & 0xFFFFFFFF:08x}" for word in range(10)]
    assert parse_cpuset(",".join(reversed(words))) == bitmap


BINDING = (
    st.text()
    | st.text("0123456789:,- xfN.<>")
    | st.lists(st.sampled_from(["0", ",", ":", "12"])).map("".join)
)


@given(BINDING)
def test_any_column_4_is_a_binding_or_none(text):
    for socket, core in parse_binding(text):
        assert socket >= 0 and core >= 0
    placements, _ = assign(agent("worker:0", FOUR_CORES), column_4=(text,))
    assert set(placements["worker:0"].cores or ()) <= {0, 1, 2, 3}


@given(BINDING, BINDING)
def test_any_binding_variables_leave_a_task_within_its_mask(binding, cpuset):
    environ = {"SGE_BINDING": binding, "SGE_BINDING_CPUSET": cpuset}
    assert all(number >= 0 for number in cpus_bound(environ, (0, 1)))
    assert set(cores(agent("worker:0", TWO_CORES, **environ))["worker:0"] or ()) <= {0, 1}
