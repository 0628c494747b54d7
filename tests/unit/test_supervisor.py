"""How a job goes on and ends, whatever happens to its tasks, agents, hosts and to the launcher itself."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from simulation import Simulation

from tf_submit import Event, Options, ParallelEnvironment

DONE = (5.0, 0, "")  # a worker's end: seconds after its start, status, last line


@pytest.fixture
def play(tmp_path: Path):
    """Makes a job with ps:0 and worker:0 on node1 and worker:1 on node2; other slots and options at will."""

    def make(*slots: int, pe: ParallelEnvironment | None = None, **options: object) -> Simulation:
        script = (str(tmp_path / "train.py"),)
        return Simulation(tmp_path, slots or (2, 1), Options(script=script, **options), pe)

    return make


def workers_end(job: Simulation, **exits: tuple[float, int, str]) -> None:
    """``worker_1=(2.0, 3, "oops")``: after 2 s with status 3; the others succeed after 5 s."""
    for run in job.runs:
        if run.task.role == "worker":
            job.agent(run.task.name).exits.append(exits.get(f"worker_{run.task.index}", DONE))


# ---- a good end


def test_when_all_workers_are_done_the_ps_is_stopped_and_the_job_has_succeeded(play):
    job = play()
    workers_end(job)
    assert job.run() == 0
    assert job.agent("ps:0").words == ["greet", "share", "run", "stop", "bye"]
    assert job.agent("worker:0").words == ["greet", "share", "run", "bye"]
    assert "first failure" not in job.printed


def test_an_agent_leaves_as_soon_as_its_task_is_done(play):
    job = play()
    workers_end(job, worker_1=(60.0, 0, ""))
    assert job.run() == 0
    assert job.agent("worker:0").when("bye") < 6 < 60 < job.agent("ps:0").when("bye")


def test_success_chief_ends_the_job_with_worker_0(play):
    job = play(success="chief")
    workers_end(job, worker_1=(500.0, 0, ""))
    assert job.run() == 0
    assert job.clock < 10
    assert "stop" in job.agent("worker:1").words


def test_an_agent_that_does_not_leave_is_cut_off(play):
    job = play()
    workers_end(job)
    job.agent("worker:1").stays = True
    assert job.run() == 0
    assert job.agent("worker:1").gone
    assert "worker:1 on node2: no answer at the end" in job.printed


# ---- failures of tasks


def test_a_worker_that_fails_ends_the_job_with_its_status(play):
    job = play()
    workers_end(job, worker_1=(2.0, 3, "ValueError: no such data"))
    assert job.run() == 3
    assert job.agent("ps:0").words[-2:] == job.agent("worker:0").words[-2:] == ["stop", "bye"]
    assert job.agent("worker:1").words[-1] == "bye"
    assert job.clock < 5


def test_the_report_begins_with_the_first_failure(play):
    job = play()
    workers_end(job, worker_0=(2.05, 4, "second"), worker_1=(2.0, -11, "oops"))
    assert job.run() == 128 + 11
    report = job.printed.partition("first failure: ")[2].splitlines()
    assert report[0] == "worker:1 on node2 was killed by SIGSEGV"
    assert "exit:  SIGSEGV" in report[4]
    assert report[5].endswith("train.tf17/logs/worker-1.log")
    assert report[7].endswith("oops")


@pytest.mark.parametrize(("status", "meaning"), [(99, "runs a job again"), (100, "into the error state")])
def test_statuses_that_speak_to_grid_engine_become_1(play, status, meaning):
    job = play()
    workers_end(job, worker_0=(2.0, status, ""))
    assert job.run() == 1
    assert meaning in job.printed


def test_what_ends_while_the_job_is_stopped_is_no_failure(play):
    job = play()
    workers_end(job, worker_1=(2.0, 3, ""))
    job.agent("worker:0").stubborn = True
    assert job.run() == 3
    assert job.clock < 2 + 0.6 + job.options.grace + 1
    assert "worker:0 on node1 was killed" not in job.printed


def test_a_ps_that_dies_ends_the_job(play):
    job = play(on_failure="continue", restarts=3)
    job.agent("ps:0").exits.append((3.0, -9, ""))
    assert job.run() == 137
    assert "first failure: ps:0 on node1 was killed by SIGKILL" in job.printed


def test_with_on_failure_continue_the_others_go_on_and_the_status_stays(play):
    job = play(on_failure="continue")
    workers_end(job, worker_0=(1.0, 7, ""), worker_1=(100.0, 0, ""))
    assert job.run() == 7
    assert job.clock > 100
    assert "stop" not in job.agent("worker:1").words


def test_with_on_failure_continue_the_job_ends_when_no_worker_is_left(play):
    job = play(on_failure="continue")
    workers_end(job, worker_0=(1.0, 7, ""), worker_1=(2.0, 8, ""))
    assert job.run() == 7
    assert job.clock < 5


# ---- restarts


def test_a_failed_worker_is_started_again_in_its_place(play):
    job = play(restarts=2)
    job.agent("worker:0").exits = [(1.0, -9, ""), (1.0, 1, ""), DONE]
    job.agent("worker:1").exits = [DONE]
    assert job.run() == 0
    assert job.agent("worker:0").words.count("run") == 3
    assert job.agent("worker:1").words.count("run") == 1
    assert "was killed by SIGKILL; starting it again (1 restart left)" in job.printed


def test_restarts_are_counted_over_all_workers(play):
    job = play(restarts=1)
    job.agent("worker:0").exits = [(1.0, 5, ""), (50.0, 0, "")]
    job.agent("worker:1").exits = [(2.0, 6, ""), (50.0, 0, "")]
    assert job.run() == 6


# ---- agents and hosts


def test_a_silent_host_is_lost_after_lost_after(play):
    job = play(lost_after=20.0)
    workers_end(job, worker_0=(500.0, 0, ""), worker_1=(500.0, 0, ""))
    job.agent("worker:1").vanishes = 30.0
    assert job.run() == 1
    assert "host node2 is lost: nothing heard of worker:1 for 20 s" in job.printed
    assert 50 <= job.clock < 53


def test_silence_that_ends_in_time_does_no_harm(play):
    job = play(lost_after=20.0)
    workers_end(job, worker_0=(100.0, 0, ""), worker_1=(100.0, 0, ""))
    job.schedule(30.0, 19.0)  # everything stands still
    assert job.run() == 0


def test_a_host_may_be_lost_with_on_failure_continue(play):
    job = play(lost_after=20.0, on_failure="continue")
    workers_end(job, worker_0=(500.0, 0, ""), worker_1=(500.0, 0, ""))
    job.agent("worker:1").vanishes = 30.0
    assert job.run() == 1
    assert job.clock > 500


@pytest.mark.parametrize(
    ("qrsh", "status", "said"),
    [
        (0, 1, "the connection ended with exit status 0"),
        (1, 1, "the connection ended with exit status 1"),
        (137, 137, "the agent was killed by SIGKILL"),
        (-9, 137, "the connection was killed by SIGKILL"),
    ],
)
def test_a_qrsh_that_ends_without_a_report_is_a_failure(play, qrsh, status, said):
    job = play()
    agent = job.agent("worker:1")
    job.schedule(3.0, Event(agent, "gone", {"status": qrsh, "why": ""}))
    assert job.run() == status
    assert f"worker:1 on node2 is lost: {said} before it reported an exit" in job.printed


def test_an_agent_that_is_lost_before_the_tasks_start_ends_the_job(play):
    job = play(on_failure="continue")
    job.agent("worker:0").comes = False
    job.schedule(3.0, Event(job.agent("worker:1"), "gone", {"status": 137, "why": ""}))
    assert job.run() == 137
    assert job.clock < 10


# ---- starts


def test_the_missing_are_named_with_what_their_qrsh_printed(play):
    job = play(start_timeout=30.0)
    job.agent("worker:1").comes = False
    job.agent("worker:1").start = lambda command: setattr(job.agent("worker:1"), "text", "waiting for node2")
    assert job.run() == 1
    assert "worker:1 on node2 did not answer within 30 s (--start-timeout)" in job.printed
    assert "node2: waiting for node2" in job.printed
    assert "waiting for worker:1 on node2, 10 s" in job.printed
    assert 30 < job.clock < 30 + 7


REFUSED = 'error: executing task of job 17 failed: execution daemon on host "node2" didn\'t accept task'


def test_a_task_that_is_not_accepted_is_tried_again_with_pauses(play):
    job = play()
    workers_end(job)
    job.agent("worker:1").failed_starts = [(1, REFUSED)] * 3
    assert job.run() == 0
    assert job.agent("worker:1").attempts == 4
    assert job.agent("worker:1").told[3][0] - job.agent("worker:1").told[0][0] >= 0.5 + 1.0 + 2.0


def test_a_task_that_is_never_accepted_is_explained(play):
    job = play(pe=ParallelEnvironment("mpi", job_is_first_task=False))
    job.agent("worker:1").failed_starts = [(1, REFUSED)] * 9
    assert job.run() == 1
    assert "worker:1 could not be started: Grid Engine let no task start on node2" in job.printed
    assert "control_slaves TRUE, job_is_first_task FALSE" in job.printed
    assert REFUSED in job.printed


def test_a_start_that_ends_with_0_is_tried_again_but_not_for_long(play):
    job = play()
    workers_end(job)
    job.agent("worker:1").failed_starts = [(0, "")]  # as when it was suspended meanwhile
    assert job.run() == 0
    job = play()
    job.agent("worker:1").failed_starts = [(0, "")] * 9  # as when the login shell exits
    assert job.run() == 1
    assert job.agent("worker:1").attempts == 3
    assert "ended with exit status 0 before the agent spoke" in job.printed


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("error: can't resolve host name", 1, "cannot resolve the name of node2"),
        (
            "bash: line 1: /opt/python3: No such file or directory",
            127,
            "cannot be run on node2; see --python",
        ),
        ("SyntaxError: future feature annotations is not defined", 1, "is older than Python 3.9"),
        (
            "qrsh_starter: cannot change to directory /scratch: No such file or directory",
            1,
            "the job's working directory is not there on node2",
        ),
        ("", 1, "exit status 1 before the agent spoke; look at what the login shell reads there"),
    ],
)
def test_other_failed_starts_are_explained_at_once(play, text, status, said):
    job = play()
    job.agent("worker:1").failed_starts = [(status, text)]
    assert job.run() == 1
    assert job.agent("worker:1").attempts == 1
    assert said in job.printed


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            BlockingIOError(11, "Resource temporarily unavailable"),
            "[Errno 11] Resource temporarily unavailable",
        ),
        (FileNotFoundError(2, "No such file or directory"), "cannot be run on node2; see --python"),
    ],
)
def test_a_process_that_cannot_be_made_is_a_failure_like_others(play, error, said):
    job = play()
    job.agent("worker:1").error = error
    assert job.run() == 1
    assert re.search(f"worker:1 could not be started: .*{re.escape(said)}", job.printed)
    assert "bye" in job.agent("worker:0").words


def test_an_agent_says_why_no_task_can_run_on_its_host(play):
    job = play()
    job.agent("worker:1").refusal = "no interface ib0 here"
    assert job.run() == 1
    assert "worker:1 cannot run on node2: no interface ib0 here" in job.printed


def test_what_several_agents_of_a_host_have_to_say_is_said_once(play):
    job = play(2, 3)
    for name in ("worker:1", "worker:2", "worker:3"):
        job.agent(name).refusal = "no interface ib0 here"
    assert job.run() == 1
    assert job.printed.count("tf_submit: error: worker:") == 1
    assert "warning: node2" not in job.printed


# ---- signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2])
def test_a_signal_stops_the_tasks_once(play, number):
    job = play()
    job.schedule(3.0, Event(None, "signal", {"number": number}))
    job.schedule(3.05, Event(None, "signal", {"number": number}))  # Grid Engine signals twice
    for name in ("worker:0", "worker:1"):
        job.agent(name).stubborn = True
    assert job.run() == 128 + number
    assert job.agent("worker:0").words == ["greet", "share", "run", "stop", "bye"]
    assert f"stopped by {number.name}" in job.printed


def test_a_second_signal_kills_the_tasks(play):
    job = play(grace=100.0)
    job.agent("worker:1").stubborn = True
    for at in (3.0, 5.0):
        job.schedule(at, Event(None, "signal", {"number": signal.SIGINT}))
    assert job.run() == 130
    assert job.agent("worker:1").when("kill") == 5.0
    assert job.clock < 10


def test_a_signal_before_all_agents_are_there_ends_the_job(play):
    job = play()
    job.agent("worker:1").comes = False
    job.schedule(2.0, Event(None, "signal", {"number": signal.SIGTERM}))
    assert job.run() == 143
    assert job.clock < 10


def test_an_agent_that_comes_while_the_job_ends_is_sent_away(play):
    job = play()
    job.schedule(0.1, Event(None, "signal", {"number": signal.SIGTERM}))
    assert job.run() == 143
    assert job.agent("worker:1").words == ["greet", "bye"]


def test_sigusr1_announces_a_suspension_where_the_job_is_notified(play):
    job = play()
    workers_end(job)
    job.job.is_notified = lambda: True
    job.schedule(3.0, Event(None, "signal", {"number": signal.SIGUSR1}))
    assert job.run() == 0


def test_sigusr1_is_the_soft_limit_where_the_job_is_not_notified(play):
    job = play()
    job.job.is_notified = lambda: False
    job.schedule(3.0, Event(None, "signal", {"number": signal.SIGUSR1}))
    assert job.run() == 128 + signal.SIGUSR1
    assert "stopped by SIGUSR1 (soft run time limit)" in job.printed


def test_while_the_launcher_is_suspended_nobody_is_silent_and_no_time_is_up(play):
    job = play(lost_after=20.0, start_timeout=30.0, grace=2.0)
    workers_end(job, worker_0=(200.0, 1, ""), worker_1=(200.0, 0, ""))
    job.agent("worker:1").stubborn = True
    job.schedule(0.1, 40.0)  # before all agents are there
    job.schedule(100.0, 40.0)  # in the middle
    job.schedule(242.0, 40.0)  # while the job is stopped
    assert job.run() == 1
    assert "lost" not in job.printed
    assert "no answer" not in job.printed


# ---- requeue


def test_a_job_that_lost_a_ps_or_host_asks_to_be_run_again_so_many_times(play, tmp_path):
    statuses = []
    for _ in range(3):
        job = play(requeue=2)
        job.agent("ps:0").exits.append((3.0, -9, ""))
        statuses.append(job.run())
    assert statuses == [99, 99, 137]
    assert "asking Grid Engine to run the job again, 2 of 2 times" in job.printed
    assert "the job ran again 2 times already" in job.printed


def test_a_worker_that_fails_is_no_reason_to_run_the_job_again(play):
    job = play(requeue=2)
    workers_end(job, worker_1=(2.0, 3, ""))
    assert job.run() == 3


def test_a_lost_host_is_a_reason_also_after_failures_that_did_not_count(play):
    job = play(requeue=1, on_failure="continue", lost_after=20.0)
    workers_end(job, worker_0=(500.0, 0, ""), worker_1=(2.0, 3, ""))
    job.agent("ps:0").vanishes = 30.0
    assert job.run() == 99


# ---- the job's folder and output


@pytest.mark.parametrize("name", ["requeues", "summary.json"])
def test_the_status_stays_when_the_folder_cannot_be_written(play, tmp_path, name):
    job = play(requeue=1)
    job.agent("ps:0").exits.append((3.0, -9, ""))
    (tmp_path / "train.tf17" / name).mkdir()
    assert job.run() == (99 if name == "summary.json" else 137)
    assert f"train.tf17/{name}: Is a directory" in job.printed


def test_a_cluster_spec_that_cannot_be_written_is_an_error_and_nothing_is_started(play, tmp_path):
    job = play()
    (tmp_path / "train.tf17" / "cluster.json").mkdir()
    assert job.run() == 2
    assert "run" not in job.agent("worker:0").words


def test_when_the_jobs_output_cannot_be_written_the_job_ends_in_order(play):
    job = play()
    workers_end(job, worker_0=(500.0, 0, ""), worker_1=(500.0, 0, ""))
    reader, stderr = os.pipe()
    os.close(reader)
    job.agent("worker:0").do_share = lambda **_: job.console.fds.update({2: stderr})
    job.agent("worker:1").exits[0] = (2.0, 0, "a line that cannot be written")
    assert job.run() == 1
    assert "stop" in job.agent("worker:0").words
    assert json.loads((Path(job.job.folder.path) / "summary.json").read_text())["status"] == 1
    os.close(stderr)
