"""No two tasks on one GPU, whichever way a scheduler or a site gives them out."""

from __future__ import annotations

import pytest
from hosts import FIXTURES, agent, captured_environment, job, machine, script
from hypothesis import given
from hypothesis import strategies as st

from tf_submit import NO_GPU, Options, UserError, assign_gpus, device_ids, gpu_grants

CPUS = machine()
ONE_HOST = job(4)
TWO_HOSTS = job(4, 4)


def assign(*agents, allocation=ONE_HOST, qstat="", found_by_script=None, **options):
    by_host: dict = {}
    for group, hello in agents:
        by_host.setdefault(group.host, []).append((group, hello))
    return assign_gpus(by_host, allocation, Options(**options), qstat, found_by_script)


def gpus(*agents, **how) -> dict[str, tuple[str, ...]]:
    """Devices by task, of a case that must not give any warning."""
    found, warnings = assign(*agents, **how)
    assert warnings == ()
    return found


def resource_map(grants: str, task: int = 1) -> str:
    return f"job_number:  17\nresource_map                {task}:   {grants}\nusage   {task}:  cpu=0\n"


# ---- the scheduler's ids on one host


def test_tasks_of_a_host_split_the_ids_that_all_of_them_see():
    found = {"SGE_HGR_gpu": "0 1 2 3"}
    agents = [agent(name, CPUS, **found) for name in ("ps:0", "worker:0", "worker:1")]
    assert gpus(*agents) == {"worker:0": ("0", "1"), "worker:1": ("2", "3")}


def test_ids_that_do_not_divide_go_to_somebody():
    assert gpus(agent("worker:0 worker:1", CPUS, SGE_HGR_gpu="0 1 2")) == {
        "worker:0": ("0",),
        "worker:1": ("1", "2"),
    }


def test_every_role_but_ps_has_gpus():
    found = gpus(agent("ps:0 chief:0 worker:0 evaluator:0", CPUS, SGE_HGR_gpu="0 1 2"))
    assert found == {"chief:0": ("0",), "worker:0": ("1",), "evaluator:0": ("2",)}


def test_gpus_per_task_takes_no_more_than_asked():
    found = gpus(agent("worker:0 worker:1", CPUS, SGE_HGR_gpu="0 1 2 3 4"), gpus_per_task=2)
    assert found == {"worker:0": ("0", "1"), "worker:1": ("2", "3")}


def test_agents_that_were_given_different_ids_keep_them():
    agents = [agent("worker:0", CPUS, SGE_HGR_gpu="1"), agent("worker:1", CPUS, SGE_HGR_gpu="0")]
    assert gpus(*agents) == {"worker:0": ("1",), "worker:1": ("0",)}


def test_the_complex_can_have_another_name_in_its_exact_case():
    found = agent("worker:0", CPUS, SGE_HGR_gpu="0", SGE_HGR_NVIDIA="3")
    assert gpus(found, gpu_resource="NVIDIA") == {"worker:0": ("3",)}
    assert gpus(found, gpu_resource="nvidia") == {}


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("0 1", ("0", "1")),
        ("0,1", ("0", "1")),
        ("gpu0 gpu10", ("0", "10")),
        ("/dev/nvidia1", ("1",)),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",)),
        ("2.000000", ()),
        ("NONE", ()),
        ("", ()),
    ],
)
def test_ids_come_in_many_forms_and_an_amount_is_none(text, devices):
    assert device_ids(text, "SGE_HGR_gpu") == devices


def test_an_id_that_is_no_device_is_named():
    with pytest.raises(UserError, match="SGE_HGR_gpu: 'tesla' is no GPU"):
        device_ids("0 tesla", "SGE_HGR_gpu")


def test_ids_that_repeat_let_tasks_share_a_gpu_as_the_site_means_it():
    assert gpus(agent("worker:0 worker:1", CPUS, SGE_HGR_gpu="0 0")) == {
        "worker:0": ("0",),
        "worker:1": ("0",),
    }
    assert gpus(agent("worker:0", CPUS, SGE_HGR_gpu="0 0 1")) == {"worker:0": ("0", "1")}


# ---- jobs over several hosts


def test_the_capture_of_the_fault_the_grant_counts_and_not_the_variable():
    agents = [
        agent(name, CPUS, host=host, **captured_environment(f"ocs-two-hosts-gpu/env.task.{host}"))
        for name, host in (("worker:0", "ocs2"), ("worker:1", "ocs1"))
    ]
    assert [hello.environment["SGE_HGR_gpu"] for _, hello in agents] == ["1", "1"]  # the fault
    qstat = (FIXTURES / "ocs-two-hosts-gpu/qstat-j.txt").read_text()
    assert gpus(*agents, allocation=TWO_HOSTS, qstat=qstat) == {"worker:0": ("0",), "worker:1": ("1",)}


def test_on_one_host_the_variable_is_right():
    found = agent("worker:0", CPUS, SGE_HGR_gpu="1")
    assert gpus(found, qstat=resource_map("gpu=node1=(0)")) == {"worker:0": ("1",)}


def test_without_a_grant_in_qstat_the_variable_is_believed_with_a_warning():
    agents = [agent(f"worker:{n}", CPUS, host=f"node{n + 1}", SGE_HGR_gpu="1") for n in (0, 1)]
    found, (warning,) = assign(*agents, allocation=TWO_HOSTS, qstat=resource_map("NONE"))
    assert found == {"worker:0": ("1",), "worker:1": ("1",)}
    assert "SGE_HGR_gpu is believed" in warning


def test_an_amount_in_the_variable_needs_no_warning():
    assert gpus(agent("worker:0", CPUS, SGE_HGR_gpu="2.000000"), allocation=TWO_HOSTS) == {}


@pytest.mark.parametrize(
    ("line", "grants"),
    [
        ("resource_map   1:   gpu=node1=(0 1),gpu=node2=(1)", {"node1": ("0", "1"), "node2": ("1",)}),
        ("resource map   1:    gpu=node1=(gpu0 gpu1)", {"node1": ("0", "1")}),
        ("resource_map   1:   fpga=node1=(7),gpu=node1=(0),gpu=node1=(2)", {"node1": ("0", "2")}),
        ("resource_map   1:   NONE", {}),
        ("resource_map   2:   gpu=node1=(0)", {}),
        ("hard_resource_list:         gpu=1", {}),
        ("", {}),
    ],
)
def test_grants_are_read_as_qstat_prints_them(line, grants):
    assert gpu_grants(f"job_number:   17\n{line}\n", "gpu", "17") == grants


def test_the_grant_of_a_task_of_an_array_job_is_its_own():
    qstat = resource_map("gpu=node1=(0)", task=1) + resource_map("gpu=node1=(1)", task=2)
    assert gpu_grants(qstat, "gpu", "17.2") == {"node1": ("1",)}


def test_a_short_name_and_a_full_one_are_the_same_host_where_only_one_can_be_meant():
    found = agent("worker:0", CPUS, host="node1.east.example.org")
    qstat = resource_map("gpu=node1=(3),gpu=node10=(4)")
    assert gpus(found, allocation=TWO_HOSTS, qstat=qstat) == {"worker:0": ("3",)}


def test_hosts_that_differ_in_their_domain_alone_are_never_taken_for_each_other():
    agents = [agent(f"worker:{n}", CPUS, host=f"node1.{domain}") for n, domain in enumerate(["east", "west"])]
    assert gpus(*agents, allocation=TWO_HOSTS, qstat=resource_map("gpu=node1=(3)")) == {}
    qstat = resource_map("gpu=node1.west=(3),gpu=node1.north=(4)")
    found, warnings = assign(*agents, allocation=TWO_HOSTS, qstat=qstat)
    assert (found, warnings) == ({"worker:1": ("3",)}, (NO_GPU + "worker:0 on node1.east",))
    assert gpus(agents[0], allocation=TWO_HOSTS, qstat=resource_map("gpu=node1.west=(3)")) == {}


# ---- CUDA_VISIBLE_DEVICES of the site


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        ("2,3", ("2", "3")),
        ("2, 3", ("2", "3")),
        ("MIG-6e5a1c08-2a", ("MIG-6e5a1c08-2a",)),
        ("1,-1,2", ("1",)),
    ],
)
def test_without_ids_the_devices_that_the_site_made_visible_count(visible, devices):
    assert gpus(agent("worker:0", CPUS, CUDA_VISIBLE_DEVICES=visible)) == {"worker:0": devices}


@pytest.mark.parametrize("visible", ["", "-1", "NoDevFiles"])
def test_where_the_site_hides_all_devices_there_are_none(visible):
    assert gpus(agent("worker:0", CPUS, CUDA_VISIBLE_DEVICES=visible)) == {}


def test_what_a_prolog_set_for_the_job_script_counts_on_the_master_host_alone():
    agents = [agent(f"worker:{n}", CPUS, host=f"node{n + 1}") for n in (0, 1)]
    found_by_script = script((0,), CUDA_VISIBLE_DEVICES="1")
    found, warnings = assign(*agents, allocation=TWO_HOSTS, found_by_script=found_by_script)
    assert found == {"worker:0": ("1",)}
    assert warnings == (NO_GPU + "worker:1 on node2",)


def test_ids_of_the_scheduler_come_before_visible_devices():
    assert gpus(agent("worker:0", CPUS, SGE_HGR_gpu="0", CUDA_VISIBLE_DEVICES="7")) == {"worker:0": ("0",)}


# ---- leases


def test_without_any_ids_each_task_has_what_its_agent_leased():
    agents = [
        agent("ps:0 worker:0", CPUS, leases=((), ("2",))),
        agent("worker:1", CPUS, leases=(("0",),)),
    ]
    assert gpus(*agents, gpus_per_task=1) == {"worker:0": ("2",), "worker:1": ("0",)}


def test_ids_come_before_leases():
    found = agent("worker:0", CPUS, SGE_HGR_gpu="1", leases=(("0",),))
    assert gpus(found, gpus_per_task=1) == {"worker:0": ("1",)}


# ---- too few


def test_more_tasks_than_gpus_are_an_error_that_counts_both():
    with pytest.raises(
        UserError,
        match=r"node1: 3 tasks \(worker:0, .*\) should have 3 GPUs, but it has 2 GPUs for them \(0, 1\)",
    ):
        assign(agent("ps:0 worker:0 worker:1 worker:2", CPUS, SGE_HGR_gpu="0 1"))


def test_leases_that_were_not_to_be_had_are_such_an_error():
    agents = [agent("worker:0", CPUS, leases=(("0",),)), agent("worker:1", CPUS, leases=((),))]
    with pytest.raises(UserError, match=r"should have 2 GPUs, but it has 1 GPU for them \(0\).*--share-gpus"):
        assign(*agents, gpus_per_task=1)


def test_gpus_asked_for_where_there_are_none_are_such_an_error():
    with pytest.raises(
        UserError,
        match=r"node1: 1 task \(worker:0\) should have 2 GPUs, but it has 0 GPUs for them \(none free\)"
        ": request more, or fewer slots on a host$",
    ):
        assign(agent("worker:0", CPUS), gpus_per_task=2, share_gpus=True)


def test_tasks_take_turns_where_they_may_share():
    agents = agent("worker:0 worker:1 worker:2", CPUS, SGE_HGR_gpu="0 1")
    assert gpus(agents, share_gpus=True) == {"worker:0": ("0",), "worker:1": ("1",), "worker:2": ("0",)}


def test_a_job_without_gpus_gets_none():
    assert gpus(agent("ps:0 worker:0", CPUS)) == {}


# ---- what always holds


@given(ids=st.integers(1, 12), workers=st.integers(1, 6), each=st.integers(0, 3))
def test_no_gpu_is_in_two_tasks_and_none_is_made_up(ids, workers, each):
    granted = " ".join(map(str, range(ids)))
    names = "ps:0 " + " ".join(f"worker:{n}" for n in range(workers))
    try:
        found = gpus(agent(names, CPUS, SGE_HGR_gpu=granted), gpus_per_task=each)
    except UserError:
        assert ids < workers * max(each, 1)
        return
    given_out = [gpu for share in found.values() for gpu in share]
    assert len(given_out) == len(set(given_out)) and set(given_out) <= set(granted.split())
    assert len(found) == workers and all(len(share) == each or not each for share in found.values())
    assert each or len(given_out) == ids


PIECES = st.sampled_from(
    ["gpu", "=", "(", ")", " ", ",", "0", "1.5", "node1", "resource_map   1:   ", "\n", "-1"]
)


@given(st.text() | st.lists(PIECES).map("".join))
def test_any_text_gives_gpus_or_a_clear_error(text):
    found = agent("worker:0", CPUS, host="node1", SGE_HGR_gpu=text, CUDA_VISIBLE_DEVICES=text)
    try:
        devices, _ = assign(found, allocation=TWO_HOSTS, qstat=text)
    except UserError as error:
        assert "is no GPU" in str(error)
    else:
        assert devices.keys() <= {"worker:0"}
