"""What tasks are told: addresses, TF_CONFIG, arguments, environment; and the JSON of the job."""

from __future__ import annotations

import json

import pytest
from hosts import captured_environment, job, task
from hypothesis import given
from hypothesis import strategies as st

from tf_submit import (
    ClusterSpec,
    Options,
    ParallelEnvironment,
    Placement,
    UserError,
    cluster_json,
    cluster_spec,
    gpu_environment,
    is_host_bound,
    make_plan,
    plan_json,
    proxy_environment,
    script_arguments,
    tf_config,
    thread_environment,
)

PLACEMENTS = [
    Placement(task("ps:0"), "node1:2222", cores=(0,), threads=1),
    Placement(task("chief:0"), "node1:2223", cores=(1,)),
    Placement(task("worker:0", "node2"), "node2:2222", gpus=("0",)),
    Placement(task("worker:1", "node2"), "node2:2223", gpus=("1",)),
    Placement(task("evaluator:0", "node3"), "node3:2222"),
]
CLUSTER = cluster_spec(PLACEMENTS)
WITHOUT_CHIEF = cluster_spec(p for p in PLACEMENTS if p.task.role in ("ps", "worker"))


def config_of(name: str) -> dict:
    role, index = name.split(":")
    return json.loads(tf_config(CLUSTER, role, int(index)))


def arguments_of(name: str, arguments: list[str], cluster: ClusterSpec = WITHOUT_CHIEF) -> list[str]:
    role, index = name.split(":")
    return script_arguments(arguments, cluster, role, int(index))


# ---- TF_CONFIG


@pytest.mark.parametrize("name", ["ps:0", "chief:0", "worker:0", "worker:1"])
def test_every_task_has_the_cluster_and_its_own_place_in_it(name):
    role, index = name.split(":")
    assert config_of(name) == {
        "cluster": {
            "ps": ["node1:2222"],
            "chief": ["node1:2223"],
            "worker": ["node2:2222", "node2:2223"],
        },
        "task": {"type": role, "index": int(index)},
    }


def test_an_evaluator_is_in_no_cluster_but_its_own():
    assert config_of("evaluator:0") == {
        "cluster": {"evaluator": ["node3:2222"]},
        "task": {"type": "evaluator", "index": 0},
    }


def test_a_cluster_too_large_for_an_environment_variable_is_an_error_that_says_so():
    placements = [Placement(task(f"worker:{n}"), f"node{n}.cluster.example.org:40000") for n in range(6000)]
    with pytest.raises(UserError, match=r"cluster spec of 6000 tasks .*--slots-per-task"):
        cluster_spec(placements)


# ---- arguments


def test_the_classic_flags_are_appended():
    assert arguments_of("worker:1", ["--epochs", "1"]) == [
        *["--epochs", "1", "-s", "node1:2222", "-w", "node2:2222,node2:2223"],
        *["--job_name", "worker", "--task_index", "1"],
    ]


def test_without_ps_there_is_no_flag_for_them():
    cluster = cluster_spec([Placement(task("worker:0"), "node1:2222")])
    expected = ["-w", "node1:2222", "--job_name", "worker", "--task_index", "0"]
    assert arguments_of("worker:0", [], cluster) == expected


@pytest.mark.parametrize(
    ("name", "job_name", "task_index"),
    [
        ("ps:0", "ps", "0"),
        ("chief:0", "worker", "0"),
        ("worker:0", "worker", "1"),
        ("worker:1", "worker", "2"),
    ],
)
def test_for_classic_scripts_the_chief_is_worker_0(name, job_name, task_index):
    flags = arguments_of(name, [], CLUSTER)
    assert flags[flags.index("-w") + 1] == "node1:2223,node2:2222,node2:2223"
    assert flags[-4:] == ["--job_name", job_name, "--task_index", task_index]


def test_placeholders_are_filled_in_and_nothing_is_appended():
    arguments = [
        "--ps_hosts={ps_hosts}",
        "--worker_hosts",
        "{worker_hosts}",
        "{job_name}/{task_index}",
        "{x} {}",
    ]
    assert arguments_of("worker:1", arguments) == [
        *["--ps_hosts=node1:2222", "--worker_hosts", "node2:2222,node2:2223", "worker/1", "{x} {}"],
    ]


def test_with_tf_config_only_the_arguments_stay_as_they_are():
    assert script_arguments(["{job_name}", "a b"], CLUSTER, "ps", 0, tf_config_only=True) == [
        "{job_name}",
        "a b",
    ]


@given(st.lists(st.text()))
def test_arguments_without_placeholders_reach_the_script_exactly(arguments):
    given_on = arguments_of("ps:0", arguments)
    if not any("{" in argument for argument in arguments):
        assert given_on[: len(arguments)] == arguments and given_on[len(arguments)] == "-s"


# ---- environment


def test_thread_counts_follow_the_placement_unless_the_user_set_them():
    placement = Placement(task("worker:0"), threads=4)
    assert thread_environment(placement, {"OMP_NUM_THREADS": "2"}) == {
        "TF_NUM_INTRAOP_THREADS": "4",
        "TF_NUM_INTEROP_THREADS": "4",
    }


def test_a_second_thread_between_operations_keeps_parameter_server_strategies_from_waiting_for_themselves():
    environment = thread_environment(Placement(task("worker:0"), threads=1), {})
    assert environment["TF_NUM_INTEROP_THREADS"] == "2"
    assert environment["TF_NUM_INTRAOP_THREADS"] == environment["OMP_NUM_THREADS"] == "1"


def test_a_task_sees_its_gpus_as_the_bus_numbers_them():
    placement = Placement(task("worker:0"), gpus=("0", "2"))
    expected = {"CUDA_VISIBLE_DEVICES": "0,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert gpu_environment(placement, job_has_gpus=True) == expected


def test_a_task_without_gpus_sees_none_in_a_job_that_has_some():
    assert gpu_environment(Placement(task("worker:0")), job_has_gpus=True)["CUDA_VISIBLE_DEVICES"] == ""


def test_in_a_job_without_gpus_only_ps_tasks_are_kept_from_them():
    assert gpu_environment(Placement(task("worker:0")), job_has_gpus=False) == {}
    assert gpu_environment(Placement(task("ps:0")), job_has_gpus=False)["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    "capture", ["ocs-two-hosts-gpu/env.task.ocs1", "sge-binding-linear-1/env.task.3.node4"]
)
def test_what_schedulers_set_differently_on_another_host_stays_on_its_host(capture):
    master = captured_environment(f"{capture.partition('/')[0]}/env.master")
    other = captured_environment(capture)
    other.pop("Cpus_allowed_list:\t0", None)
    differing = {name for name in master.keys() | other.keys() if master.get(name) != other.get(name)}
    of_the_job = {"JOB_NAME", "JOB_SCRIPT", "REQNAME", "REQUEST", "SGE_O_HOST", "SGE_O_PATH", "SGE_O_SHELL"}
    assert {name for name in differing if not is_host_bound(name)} == of_the_job & differing


def test_variables_of_the_master_host_stay_there():
    names = """
        CUDA_VISIBLE_DEVICES SGE_HGR_gpu SGE_BINDING SGE_BINDING_CPUSET TMPDIR TMP HOSTNAME QRSH_PORT
        PE_HOSTFILE SGE_JOB_SPOOL_DIR SGE_STDOUT_PATH
        """
    assert [name for name in names.split() if not is_host_bound(name)] == []


def test_the_users_own_variables_go_to_every_task():
    names = "PATH HOME LD_LIBRARY_PATH JOB_ID MY_TMPDIR HOSTS CUDA_HOME OMP_NUM_THREADS XDG_CONFIG_HOME"
    assert [name for name in names.split() if is_host_bound(name)] == []


def test_the_hosts_of_the_cluster_need_no_proxy():
    environ = {"https_proxy": "http://proxy:3128", "NO_PROXY": "localhost"}
    addresses = ["node1:2222", "node1:2223", "10.0.0.7:2222", "[fd00::1]:2222"]
    lists = proxy_environment(environ, addresses)
    assert lists == dict.fromkeys(
        ("no_proxy", "NO_PROXY", "no_grpc_proxy"), "localhost,node1,10.0.0.7,fd00::1"
    )


def test_the_users_own_lists_of_exemptions_are_kept():
    environ = {"HTTP_PROXY": "http://proxy:3128", "no_proxy": "a", "NO_PROXY": "b", "no_grpc_proxy": "c"}
    lists = proxy_environment(environ, ["node1:1"])
    assert lists == {"no_proxy": "a,node1", "NO_PROXY": "b,node1", "no_grpc_proxy": "c,node1"}


def test_without_a_proxy_nothing_is_set():
    assert proxy_environment({"no_proxy": "localhost"}, ["node1:2222"]) == {}


# ---- JSON


def test_cluster_json_holds_tasks_addresses_cores_and_gpus():
    contents = cluster_json("17", PLACEMENTS)
    assert contents["job_id"] == "17"
    assert contents["tasks"][0] == {
        "role": "ps",
        "index": 0,
        "host": "node1",
        "address": "node1:2222",
        "slots": 1,
        "cores": [0],
        "gpus": [],
    }
    assert contents["tasks"][2]["cores"] is None
    assert contents["cluster"] == json.loads(CLUSTER.text)


def test_before_the_start_ports_cores_and_gpus_are_null():
    plan = make_plan(job(2), ParallelEnvironment(), Options())
    contents = plan_json("17", plan, Options())
    assert [(t["address"], t["cores"], t["gpus"]) for t in contents["tasks"]] == [(None, None, None)] * 2
    assert contents["cluster"] == {"ps": [None], "worker": [None]}


def test_with_a_base_port_the_ports_are_known_before_the_start():
    plan = make_plan(job(2, 1), ParallelEnvironment(), Options())
    contents = plan_json("17", plan, Options(port=2222))
    assert contents["cluster"] == {"ps": ["node1:2222"], "worker": ["node1:2223", "node2:2222"]}


def test_the_address_on_an_interface_is_unknown_before_the_start():
    plan = make_plan(job(2), ParallelEnvironment(), Options())
    contents = plan_json("17", plan, Options(port=2222, interface="ib0"))
    assert contents["cluster"] == {"ps": [None], "worker": [None]}
