"""The texts of the report: tables, exits, the failure report and summary.json."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tf_submit
from tf_submit import Failure, Outcome, Placement, Task

PS = Task("ps", 0, "node1")
WORKER = Task("worker", 0, "node2", slots=2)


@pytest.mark.parametrize(
    ("status", "name"),
    [(0, "0"), (1, "1"), (137, "137"), (-9, "SIGKILL"), (-11, "SIGSEGV"), (-35, "signal 35")],
)
def test_an_exit_reads_as_a_number_or_the_name_of_a_signal(status, name):
    assert tf_submit.exit_name(status) == name


@pytest.mark.parametrize(
    ("status", "of_the_job"),
    [(0, 0), (3, 3), (255, 255), (-9, 137), (-11, 139), (99, 1), (100, 1), (None, 1)],
)
def test_the_job_exits_like_the_task_that_failed_but_never_with_a_status_that_means_something_to_grid_engine(
    status, of_the_job
):
    assert tf_submit.exit_status(status) == of_the_job


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (7.31, "7.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (72, "1 min 12 s"),
        (3599.6, "1 h 00 min"),
        (11100, "3 h 05 min"),
        (360000, "100 h 00 min"),
    ],
)
def test_durations(seconds, text):
    assert tf_submit.duration(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(5 << 20, "5 MiB"), (1 << 30, "1.0 GiB"), (3 << 29, "1.5 GiB")])
def test_memory_sizes(size, text):
    assert tf_submit.memory_size(size) == text


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((0, 1), "0-1"), ((8, 0, 1, 2, 3), "0-3,8"), ((0, 2, 4), "0,2,4")],
)
def test_number_ranges(numbers, text):
    assert tf_submit.number_ranges(numbers) == text


@given(st.sets(st.integers(0, 300)))
def test_number_ranges_name_every_number_once(numbers):
    parts = [part.split("-") for part in tf_submit.number_ranges(numbers).split(",") if part]
    named = [number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)]
    assert named == sorted(numbers)


def test_the_placement_shows_cores_as_ranges_with_their_sockets():
    placements = [
        Placement(PS, "node1:2222"),
        Placement(WORKER, "node2:2222", cores=(0, 1, 2, 3), sockets=(0,)),
        Placement(Task("worker", 1, "node2"), "node2:2223", cores=(4, 5, 12), sockets=(0, 1)),
        Placement(Task("worker", 2, "node2"), "node2:2224", cores=(6,)),
    ]
    assert tf_submit.placement_table(placements) == [
        "task      host   address     cores",
        "ps:0      node1  node1:2222  not pinned",
        "worker:0  node2  node2:2222  0-3 (socket 0)",
        "worker:1  node2  node2:2223  4-5,12 (sockets 0-1)",
        "worker:2  node2  node2:2224  6",
    ]


def test_the_placement_has_a_column_for_gpus_when_a_task_has_some():
    placements = [
        Placement(PS, "node1:2222", cores=(0,), sockets=(0,)),
        Placement(WORKER, "node2:2222", cores=(0,), sockets=(0,), gpus=("0", "3")),
    ]
    assert tf_submit.placement_table(placements) == [
        "task      host   address     cores         GPUs",
        "ps:0      node1  node1:2222  0 (socket 0)  -",
        "worker:0  node2  node2:2222  0 (socket 0)  0,3",
    ]


def test_before_the_start_the_placement_leaves_open_what_only_the_nodes_know():
    assert tf_submit.placement_table([Placement(PS), Placement(WORKER, "node2:2222")], planned=True) == [
        "task      host   address     cores",
        "ps:0      node1  ?           ?",
        "worker:0  node2  node2:2222  ?",
    ]


def test_the_summary_has_a_line_per_task():
    outcomes = [
        Outcome(PS, -15, started=100.0, ended=172.0, cpu_seconds=3.6, peak_memory=400 << 20, stopped=True),
        Outcome(WORKER, 0, started=102.0, ended=112.0, cpu_seconds=15.0, peak_memory=3 << 29, restarts=2),
    ]
    placements = [Placement(PS, cores=(0,)), Placement(WORKER)]
    assert tf_submit.summary_table(outcomes, placements) == [
        "task      host   exit      wall time  CPU time  CPU use  peak memory  restarts",
        "ps:0      node1  stopped  1 min 12 s     3.6 s       5%      400 MiB         0",
        "worker:0  node2  0            10.0 s    15.0 s      75%      1.5 GiB         2",
    ]


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome(WORKER), "never started"),
        (Outcome(WORKER, started=1.0), "lost"),
        (Outcome(WORKER, started=1.0, stopped=True), "lost"),
        (Outcome(WORKER, 0, 1.0, 2.0), "0"),
        (Outcome(WORKER, 2, 1.0, 2.0), "2"),
        (Outcome(WORKER, -11, 1.0, 2.0), "SIGSEGV"),
        (Outcome(WORKER, -15, 1.0, 2.0, stopped=True), "stopped"),
    ],
)
def test_the_summary_tells_a_failure_from_a_loss_and_from_an_end_on_purpose(outcome, text):
    assert tf_submit.exit_text(outcome) == text


def test_the_summary_shows_what_is_known_of_a_task_that_was_lost():
    lost = Outcome(WORKER, started=5.0, cpu_seconds=7.0, peak_memory=1 << 20)
    assert tf_submit.summary_row(lost, 2) == ["worker:0", "node2", "lost", "-", "7.0 s", "-", "1 MiB", "0"]
    assert tf_submit.summary_row(Outcome(PS), 1) == ["ps:0", "node1", "never started", *"----", "0"]


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(0, "succeeded"), (139, "failed with exit status 139"), (99, "asks to be run again (exit status 99)")],
)
def test_one_line_says_how_the_job_went(status, verdict):
    outcomes = [Outcome(PS, 0, 0.0, 60.0, 3600.0), Outcome(WORKER, 0, 0.0, 60.0, 7500.0)]
    assert tf_submit.job_line(outcomes, status, 61.0, "train.tf17") == (
        f"the job {verdict}: 2 tasks on 2 hosts, wall time 1 min 01 s, CPU time 3 h 05 min; "
        "logs and summary.json are in train.tf17"
    )


def test_the_live_line_counts_the_tasks():
    waiting, running, done = Outcome(PS), Outcome(WORKER, started=1.0), Outcome(WORKER, 0, 1.0, 2.0)
    assert tf_submit.status_line([waiting, running], 5.0) == "1 of 2 tasks running, 5.0 s"
    assert tf_submit.status_line([running, done, done], 65.0) == "1 of 3 tasks running, 2 done, 1 min 05 s"


def test_the_failure_report_begins_with_the_root_cause():
    failure = Failure(
        when=time.mktime((2024, 5, 17, 12, 0, 3, 0, 0, -1)),
        what="worker:0 on node2 was killed by SIGSEGV",
        task=WORKER,
        host="node2",
        status=-11,
        lines=("step 7", "Fatal Python error: Segmentation fault"),
        log="train.tf17/logs/worker-0.log",
    )
    assert tf_submit.failure_report(failure) == [
        "first failure: worker:0 on node2 was killed by SIGSEGV",
        "  time:  2024-05-17 12:00:03",
        "  task:  worker:0",
        "  host:  node2",
        "  exit:  SIGSEGV",
        "  log:   train.tf17/logs/worker-0.log",
        "  last lines:",
        "    step 7",
        "    Fatal Python error: Segmentation fault",
    ]


def test_the_failure_report_leaves_out_what_is_not_known():
    lines = tf_submit.failure_report(Failure(when=0.0, what="node3 is lost", host="node3"))
    assert [line.split()[0] for line in lines] == ["first", "time:", "host:"]


@pytest.mark.parametrize("status", [99, 100])
def test_the_failure_report_says_why_the_job_does_not_end_with_99_or_100(status):
    lines = tf_submit.failure_report(Failure(0.0, f"worker:0 on node2 exited with {status}", status=status))
    assert f"{status} (the job ends with 1: Grid Engine " in "\n".join(lines)


@pytest.mark.parametrize(
    ("what", "last_line", "advice"),
    [
        ("worker:0 exited with 1", "ModuleNotFoundError: No module named 'tensorflow'", "install TensorFlow"),
        ("ps:0 exited with 1", "UnknownError: Could not start gRPC server", "port"),
        ("worker:0 exited with 1", "OSError: [Errno 28] No space left on device", "make room"),
        ("worker:0 was killed by SIGKILL", "step 3", "out of memory"),
        ("worker:0 was killed by SIGILL", "", "instructions"),
        ("worker:0 exited with 1", "UNAVAILABLE: failed to connect to all addresses", "http_proxy"),
    ],
)
def test_a_failure_that_is_well_known_comes_with_a_hint(what, last_line, advice):
    failure = Failure(0.0, what, lines=(last_line, "one more line"))
    assert advice in tf_submit.hint(failure)
    assert f"  hint:  {tf_submit.hint(failure)}" in tf_submit.failure_report(failure)


def test_other_failures_come_without_a_hint():
    assert tf_submit.hint(Failure(0.0, "worker:0 exited with 1", lines=("ValueError: no module",))) == ""


def test_summary_json_has_the_facts_of_the_job():
    outcomes = [
        Outcome(WORKER, 0, started=100.0, ended=110.0, cpu_seconds=15.0, peak_memory=1024),
        Outcome(PS),
    ]
    failure = Failure(110.0, "ps:0 never started", task=PS, host="node1")
    summary = tf_submit.summary_json("17", outcomes, [Placement(WORKER)], failure, status=1)
    assert json.loads(json.dumps(summary)) == {
        "job_id": "17",
        "status": 1,
        "failure": {
            "when": 110.0,
            "what": "ps:0 never started",
            "task": "ps:0",
            "host": "node1",
            "status": None,
            "lines": [],
            "log": "",
        },
        "tasks": [
            {
                "role": "worker",
                "index": 0,
                "host": "node2",
                "slots": 2,
                "exit": "0",
                "status": 0,
                "started": 100.0,
                "ended": 110.0,
                "cpu_seconds": 15.0,
                "peak_memory": 1024,
                "restarts": 0,
                "stopped": False,
                "cpu_use": 0.75,
            },
            {
                "role": "ps",
                "index": 0,
                "host": "node1",
                "slots": 1,
                "exit": "never started",
                "status": None,
                "started": None,
                "ended": None,
                "cpu_seconds": 0.0,
                "peak_memory": 0,
                "restarts": 0,
                "stopped": False,
                "cpu_use": None,
            },
        ],
    }


def test_summary_json_of_a_job_that_went_well_has_no_failure():
    assert tf_submit.summary_json("17", [], [], None, status=0)["failure"] is None
