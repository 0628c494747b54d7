"""How slots become tasks with roles, and tasks become groups that one agent each runs."""

from __future__ import annotations

import pytest
from hosts import job
from hypothesis import given
from hypothesis import strategies as st

from tf_submit import Allocation, Options, ParallelEnvironment, UserError, make_plan, parse_hostfile, parse_pe

GOOD_PE = ParallelEnvironment()


def layout(allocation, **options) -> str:
    """Tasks with their hosts, e.g. "ps:0@node1 worker:0@node1"."""
    plan = make_plan(allocation, GOOD_PE, Options(**options))
    return " ".join(f"{task.name}@{task.host}" for task in plan.tasks)


def groups(allocation, pe=GOOD_PE, **options) -> list[str]:
    """Groups as "node1 qrsh ps:0 worker:0"."""
    plan = make_plan(allocation, pe, Options(**options))
    return [" ".join([g.host, g.transport, *(task.name for task in g.tasks)]) for g in plan.groups]


# ---- roles


@pytest.mark.parametrize(
    ("slots", "options", "tasks"),
    [
        ((2, 1), {}, "ps:0@node1 worker:0@node1 worker:1@node2"),
        ((1, 2), {}, "ps:0@node1 worker:0@node2 worker:1@node2"),
        ((2, 1), {"ps": 0}, "worker:0@node1 worker:1@node1 worker:2@node2"),
        ((3, 1), {"ps": 2}, "ps:0@node1 ps:1@node1 worker:0@node1 worker:1@node2"),
        ((2, 2), {"chief": True}, "ps:0@node1 chief:0@node1 worker:0@node2 worker:1@node2"),
        ((2, 2), {"evaluator": True}, "ps:0@node1 worker:0@node1 worker:1@node2 evaluator:0@node2"),
        (
            (3, 2),
            {"ps": 2, "spread_ps": True},
            "ps:0@node1 ps:1@node2 worker:0@node1 worker:1@node1 worker:2@node2",
        ),
        ((2, 2), {"ps": 3, "spread_ps": True}, "ps:0@node1 ps:1@node2 ps:2@node1 worker:0@node2"),
        ((1,), {"ps": 0}, "worker:0@node1"),
    ],
)
def test_ps_have_the_first_slots_then_come_chief_workers_and_evaluator(slots, options, tasks):
    assert layout(job(*slots), **options) == tasks


def test_several_slots_of_a_host_can_make_one_task():
    plan = make_plan(job(4, 2), GOOD_PE, Options(slots_per_task=2))
    assert [(task.name, task.host, task.slots) for task in plan.tasks] == [
        ("ps:0", "node1", 2),
        ("worker:0", "node1", 2),
        ("worker:1", "node2", 2),
    ]
    assert plan.warnings == ()


def test_slots_that_do_not_divide_are_named_in_a_warning():
    plan = make_plan(job(5, 2, 1), GOOD_PE, Options(slots_per_task=2))
    assert len(plan.tasks) == 3
    assert plan.warnings == ("slots left over by --slots-per-task 2: 1 of 5 on node1, 1 of 1 on node3",)


def test_a_warning_about_very_many_hosts_stays_short():
    (warning,) = make_plan(job(*[3] * 300), GOOD_PE, Options(slots_per_task=2)).warnings
    assert warning.endswith(" and 292 more")


@pytest.mark.parametrize(
    ("slots", "options", "complaint"),
    [
        ((1,), {}, r"room for 1 task, but 1 ps, 1 worker need 2"),
        ((3,), {"ps": 3}, r"room for 3 tasks, but 3 ps, 1 worker need 4"),
        ((3,), {"chief": True, "evaluator": True}, r"1 ps, 1 chief, 1 worker, 1 evaluator need 4"),
        ((3, 3), {"slots_per_task": 4}, r"room for 0 tasks of 4 slots each"),
    ],
)
def test_too_few_slots_for_the_roles_are_an_error_that_counts_both(slots, options, complaint):
    with pytest.raises(UserError, match=complaint) as error:
        make_plan(job(*slots), GOOD_PE, Options(**options))
    assert "-pe NAME SLOTS" in str(error.value)


# ---- groups and transports


def test_by_default_every_task_has_an_agent_of_its_own_at_the_end_of_a_qrsh():
    assert groups(job(2, 1)) == ["node1 qrsh ps:0", "node1 qrsh worker:0", "node2 qrsh worker:1"]


def test_groups_per_host_have_one_agent_per_host_and_need_no_qrsh_on_the_master_host():
    expected = ["node1 local ps:0 worker:0", "node2 qrsh worker:1 worker:2"]
    assert groups(job(2, 2), per_host=True) == expected


def test_where_the_daemon_forks_its_tasks_each_host_takes_one_qrsh():
    pe = ParallelEnvironment(daemon_forks_slaves=True)
    assert groups(job(2, 2), pe) == ["node1 qrsh ps:0 worker:0", "node2 qrsh worker:1 worker:2"]


def test_where_the_job_is_the_first_task_the_master_host_takes_one_qrsh_less():
    pe = ParallelEnvironment(job_is_first_task=True)
    assert groups(job(2, 2), pe) == [
        "node1 local ps:0",
        "node1 qrsh worker:0",
        "node2 qrsh worker:1",
        "node2 qrsh worker:2",
    ]


def test_where_the_job_is_the_first_task_spare_slots_leave_room_for_every_qrsh():
    pe = ParallelEnvironment(job_is_first_task=True)
    assert groups(job(4, 2), pe, slots_per_task=2)[0] == "node1 qrsh ps:0"
    assert groups(job(1, 2), pe)[0] == "node1 local ps:0"


def test_a_host_takes_a_qrsh_for_each_slot_of_its_first_queue_instance_unless_it_is_the_master_host():
    lines = "node1 1 all.q@node1\nnode1 1 fat.q@node1\nnode2 2 all.q@node2\nnode2 3 fat.q@node2\n"
    assert groups(Allocation("17", "train", parse_hostfile(lines, "hosts"))) == [
        "node1 qrsh ps:0",
        "node1 qrsh worker:0",
        "node2 qrsh worker:1 worker:2",
        "node2 qrsh worker:3 worker:4 worker:5",
    ]


def test_where_the_master_forks_its_tasks_are_local_children():
    pe = ParallelEnvironment(master_forks_slaves=True)
    assert groups(job(2, 1), pe) == ["node1 local ps:0", "node1 local worker:0", "node2 qrsh worker:1"]


def test_without_control_of_slaves_a_job_on_several_hosts_is_an_error_that_explains():
    pe = parse_pe("pe_name mpi\ncontrol_slaves FALSE\n")
    with pytest.raises(UserError, match=r"mpi has control_slaves FALSE.* node2: .*qconf -mp mpi"):
        make_plan(job(2, 1), pe, Options())


def test_without_control_of_slaves_a_job_on_one_host_runs_locally():
    assert groups(job(2), ParallelEnvironment(control_slaves=False)) == [
        "node1 local ps:0",
        "node1 local worker:0",
    ]


def test_a_local_run_needs_no_scheduler():
    assert groups(job(2), local=2) == ["node1 local ps:0", "node1 local worker:0"]


@given(
    slots=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    pe=st.builds(
        ParallelEnvironment,
        name=st.just("pe"),
        control_slaves=st.booleans(),
        job_is_first_task=st.booleans(),
        master_forks_slaves=st.booleans(),
        daemon_forks_slaves=st.booleans(),
    ),
    options=st.builds(
        Options,
        ps=st.integers(0, 4),
        chief=st.booleans(),
        evaluator=st.booleans(),
        spread_ps=st.booleans(),
        slots_per_task=st.integers(1, 3),
        per_host=st.booleans(),
    ),
)
def test_a_plan_keeps_to_the_slots_and_to_what_the_parallel_environment_allows(slots, pe, options):
    allocation = job(*slots)
    try:
        plan = make_plan(allocation, pe, options)
    except UserError:
        return
    by_host = {host.name: host.slots for host in allocation.hosts}
    for host, granted in by_host.items():
        assert sum(task.slots for task in plan.tasks if task.host == host) <= granted
        started = [group for group in plan.groups if (group.host, group.transport) == (host, "qrsh")]
        assert len(started) <= granted - (pe.job_is_first_task and host == "node1")
        assert len(started) <= 1 or not pe.daemon_forks_slaves
        assert not started or pe.control_slaves
    assert not [group for group in plan.groups if group.transport == "local" and group.host != "node1"]
    assert sorted(t.name for g in plan.groups for t in g.tasks) == sorted(t.name for t in plan.tasks)
    assert all(t.host == g.host for g in plan.groups for t in g.tasks)
    counts = {role: [t.index for t in plan.tasks if t.role == role] for role in ("ps", "chief", "evaluator")}
    assert counts["ps"] == list(range(options.ps))
    assert (len(counts["chief"]), len(counts["evaluator"])) == (options.chief, options.evaluator)
    assert any(task.role == "worker" for task in plan.tasks)
