"""What ``--check`` finds on a host, and what it makes of the findings of all hosts."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import pytest
from hosts import job

import tf_submit
from tf_submit import Fault, Findings, Host, Options, ParallelEnvironment

GOOD_PE = ParallelEnvironment("tensorflow")
DEFAULTS = Options()


def found(**differently: object) -> Findings:
    """The findings on a host where all is well, but for what is given."""
    good = {
        "python": "3.11.2",
        "psutil": "7.1.0",
        "tensorflow": "2.21.0",
        "why": "",
        "gpus": 0,
        "devices": 0,
        "cpus": [0, 1],
        "online": 8,
        "environment": {},
        "unresolved": {},
        "unreached": {},
    }
    return Findings(**{**good, **differently})  # type: ignore[arg-type]


def faults(
    pe: ParallelEnvironment = GOOD_PE, options: Options = DEFAULTS, **findings: Findings
) -> list[Fault]:
    """The faults of a job with one slot on each of these hosts."""
    return tf_submit.judge(job(*[1] * len(findings)), pe, options, findings)


def texts(**findings: Findings) -> list[tuple[str, str]]:
    return [(fault.host, fault.what) for fault in faults(**findings)]


# ---- judging


def test_no_faults_where_all_is_well():
    assert faults(node1=found(), node2=found()) == []


def test_python_older_than_needed_is_a_fault():
    [old] = faults(node1=found(), node2=found(python="3.8.10"))
    assert (old.host, old.cure) == ("node2", "3.9 is needed; see --python")
    assert old.what.endswith("is Python 3.8.10")
    assert faults(node1=found(python="3.10.0")) == []


@pytest.mark.parametrize(
    ("why", "cure"),
    [
        ("ModuleNotFoundError: No module named 'tensorflow'", "install TensorFlow for this Python"),
        ("killed by SIGILL", "the CPU of that host may lack instructions"),
        ("ImportError: libz.so: cannot open shared object file", "/usr/bin/py -c 'import tensorflow'"),
    ],
)
def test_a_tensorflow_that_cannot_be_imported_is_a_fault_with_a_cure(why, cure):
    [missing] = faults(node1=found(tensorflow="", why=why), options=Options(python="/usr/bin/py"))
    assert (missing.host, missing.what) == ("node1", f"TensorFlow cannot be imported: {why}")
    assert cure in missing.cure


def test_the_hosts_whose_tensorflow_differs_from_that_of_most_are_at_fault():
    other = found(tensorflow="2.20.0")
    assert texts(node1=other, node2=found(), node3=found(), node4=other, node5=found()) == [
        ("node1", "TensorFlow 2.20.0, but 2.21.0 on node2, node3, node5"),
        ("node4", "TensorFlow 2.20.0, but 2.21.0 on node2, node3, node5"),
    ]


def test_a_missing_tensorflow_is_no_other_version():
    assert len(faults(node1=found(tensorflow="", why="?"), node2=found(), node3=found())) == 1


@pytest.mark.parametrize(
    ("environment", "gpus_per_task"),
    [({"SGE_HGR_gpu": "0 1"}, 0), ({"CUDA_VISIBLE_DEVICES": "1"}, 0), ({}, 2)],
)
def test_a_job_with_gpus_needs_a_tensorflow_that_sees_them(environment, gpus_per_task):
    options = Options(gpus_per_task=gpus_per_task)
    [blind] = faults(options=options, node1=found(environment=environment, devices=2))
    assert blind.what == "the job uses GPUs, but TensorFlow sees none"
    assert faults(options=options, node1=found(environment=environment, devices=2, gpus=2)) == []


@pytest.mark.parametrize("environment", [{}, {"SGE_HGR_gpu": "NONE"}, {"CUDA_VISIBLE_DEVICES": "-1"}])
def test_a_job_without_gpus_does_not_need_them(environment):
    assert faults(node1=found(environment=environment, devices=2)) == []


def test_control_slaves_false_is_a_fault_of_the_cluster():
    [fault] = faults(ParallelEnvironment("smp", control_slaves=False), node1=found(), node2=found())
    assert fault.host == ""
    assert "smp has control_slaves FALSE, so Grid Engine starts no tasks on node2" in fault.what


def test_what_else_differs_in_the_parallel_environment_is_a_warning():
    assert tf_submit.pe_warnings(GOOD_PE) == []
    [warning] = tf_submit.pe_warnings(ParallelEnvironment("mpi", job_is_first_task=True))
    assert "mpi has job_is_first_task TRUE" in warning
    assert "qconf -rattr pe job_is_first_task FALSE mpi" in warning
    assert "qconf -sp" in tf_submit.pe_warnings(ParallelEnvironment())[0]


# ---- names and connections


def test_a_host_that_does_not_know_a_name_is_at_fault():
    assert texts(node1=found(unresolved={"node2": "Name or service not known"}), node2=found()) == [
        ("node1", "does not resolve node2: Name or service not known")
    ]


def test_a_host_that_nobody_reaches_is_at_fault_not_all_others():
    gap = {"node3": "timed out"}
    unreached = {"node1": "No route to host", "node2": "No route to host"}
    assert texts(
        node1=found(unreached=gap), node2=found(unreached=gap), node3=found(unreached=unreached)
    ) == [
        (
            "node3",
            "does not reach node1, node2 and is not reached from node1, node2: timed out, No route to host",
        )
    ]


def test_a_name_that_is_known_nowhere_is_a_fault_of_its_host():
    gap = {"node2": "Name or service not known"}
    assert texts(node1=found(unresolved=gap), node2=found(unresolved=gap), node3=found(unresolved=gap)) == [
        (
            "node2",
            "does not resolve node2 and its name is not resolved on node1, node3: Name or service not known",
        )
    ]


def test_the_host_to_blame_is_the_one_with_the_most_partners_out_of_reach():
    both_ways = [("b", "c", "?"), ("c", "b", "?")]
    gaps = [*both_ways, ("d", "a", "?"), ("d", "b", "?"), ("d", "c", "?")]
    assert list(tf_submit.blame(gaps)) == [("d", gaps[2:]), ("b", both_ways)]


def test_every_gap_is_put_down_to_one_host():
    gaps = [(source, target, "?") for source in "abcd" for target in "abcd" if source != target]
    blamed = list(tf_submit.blame(gaps))
    assert len(blamed) == 3
    assert sorted(gap for _, own in blamed for gap in own) == gaps
    assert all(host in gap for host, own in blamed for gap in own)


# ---- the report


def test_the_table_has_a_line_for_each_host():
    hosts = [Host("node1", 4), Host("node2", 12), Host("node3", 1)]
    findings = {
        "node1": found(environment={"SGE_HGR_gpu": "0 1"}, gpus=2, devices=4, cpus=[0, 1, 2, 3]),
        "node2": found(psutil="", tensorflow=""),
    }
    known = [Fault("node2", "no psutil"), Fault("node2", "no TensorFlow")]
    assert tf_submit.check_table(hosts, {"node1": ("node1", 2222)}, findings, known, DEFAULTS) == [
        "host   slots  Python  psutil  TensorFlow  address     CPUs      GPUs                  result",
        "node1      4  3.11.2  7.1.0   2.21.0      node1:2222  0-3 of 8  2 of 4 (granted 0 1)  ok",
        "node2     12  3.11.2  -       -           -           0-1 of 8  0 of 0                2 faults",
        "node3      1  ?       ?       ?           ?           ?         ?                     not checked",
    ]


def test_faults_come_in_the_order_of_the_hosts_and_a_common_one_once():
    hosts = [Host("node1", 1), Host("node2", 1), Host("node3", 1)]
    known = [Fault("node3", "no psutil", "install it"), Fault("node2", "lost"), Fault("", "no PE")]
    known.append(Fault("node1", "no psutil", "install it"))
    assert tf_submit.fault_lines(known, hosts) == [
        "no PE",
        "node1, node3: no psutil\n    install it",
        "node2: lost",
    ]


# ---- which hosts


def test_one_task_per_host_by_qrsh():
    groups = tf_submit.check_groups(job(2, 1), GOOD_PE, Options())
    assert [(group.host, group.transport, len(group.tasks)) for group in groups] == [
        ("node1", "qrsh", 1),
        ("node2", "qrsh", 1),
    ]


def test_the_master_host_is_checked_without_qrsh_where_the_parallel_environment_allows_none():
    def transports(**attributes: bool) -> list[str]:
        pe = ParallelEnvironment("other", **attributes)
        return [group.transport for group in tf_submit.check_groups(job(1, 1), pe, Options())]

    assert transports(control_slaves=False) == ["local"]
    assert transports(job_is_first_task=True) == ["local", "qrsh"]
    assert transports(master_forks_slaves=True) == ["local", "qrsh"]


@pytest.mark.parametrize("words", [["--check", "train.py"], ["--check", "--", "sh", "-c", "true"]])
def test_the_check_runs_no_script(words):
    with pytest.raises(tf_submit.UserError, match="--check runs no script"):
        tf_submit.parse_options(words)


# ---- on a host


@pytest.fixture
def tensorflow(tmp_path, monkeypatch):
    """Writes a module tensorflow for the Python that looks for it."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return lambda text: Path(tmp_path, "tensorflow.py").write_text(text)


def test_version_and_gpus_of_tensorflow(tensorflow):
    tensorflow("class config: list_physical_devices = lambda kind: [kind, kind]\n__version__ = '2.99.0'\n")
    assert tf_submit.find_tensorflow() == {"tensorflow": "2.99.0", "gpus": 2, "why": ""}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise ImportError('no libcudart')", "ImportError: no libcudart"),
        ("import os; os.kill(os.getpid(), 4)", "killed by SIGILL"),
    ],
)
def test_why_tensorflow_cannot_be_imported(tensorflow, text, why):
    tensorflow(text)
    assert tf_submit.find_tensorflow() == {"tensorflow": "", "gpus": 0, "why": why}


def test_a_missing_psutil(monkeypatch):
    assert tf_submit.psutil_version()
    monkeypatch.setitem(sys.modules, "psutil", None)  # as if it were not installed
    assert tf_submit.psutil_version() == ""


def test_a_reserved_port_can_be_reached_once_the_task_listens():
    [reserved] = tf_submit.reserve_ports(None, 1)
    place = ("127.0.0.1", reserved.getsockname()[1])
    assert tf_submit.why_unreached(place, time.monotonic()) == "Connection refused"
    tf_submit.share_port(reserved)
    with reserved, tf_submit.listen_on(place[1], backlog=1):
        assert tf_submit.why_unreached(place, time.monotonic()) == ""


def test_gaps_are_the_names_and_the_ports_that_fail(monkeypatch):
    monkeypatch.setattr(tf_submit, "REACH_TIME", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        peers = {
            "localhost": ("localhost", listener.getsockname()[1]),
            "127.0.0.1": ("127.0.0.1", closed.getsockname()[1]),
            "no-such-host.invalid": None,
            "nor-this.invalid": ("nor-this.invalid", 1),
        }
        gaps = tf_submit.find_gaps(peers)
    assert list(gaps["unresolved"]) == ["no-such-host.invalid", "nor-this.invalid"]
    assert gaps["unreached"] == {"127.0.0.1": "Connection refused"}
