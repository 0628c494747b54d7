"""Short jobs with a random fault each, at a random moment: none hangs, the status is true, nothing stays.

CHAOS_JOBS says how many (a few by default). The name of a test holds the seed and the job's number, on which
alone everything random depends: `CHAOS_SEED=1234 CHAOS_JOBS=58 pytest -k "1234-57"` repeats a single job.
conftest.py checks what is left after each.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from gridengine import MASTER, Cluster, wait_until
from jobs import Folder, Job
from plays import have_begun, kill, play, processes

SEED = int(os.environ.get("CHAOS_SEED", time.time_ns() % 1_000_000))
JOBS = int(os.environ.get("CHAOS_JOBS", "6"))
LOST_AFTER = 8  # seconds
KILLED = 128 + signal.SIGKILL

Act = Callable[[Job], object]


@dataclass(frozen=True)
class Fault:
    """What goes wrong: the part of one task, or an act from outside; and what is then true and said."""

    status: int
    says: str = ""
    part: str = ""  # of the victim
    act: Act | None = None
    early: bool = False  # whether the act may come before all tasks have begun
    options: Sequence[str] = ()
    qsub: Sequence[str] = ()


def expected(status: int) -> int:
    """The exit status of a job for that of its first failed task."""
    return 1 if status in (99, 100) else status


# ---- the faults; ``victim`` is the task that is hit


def nothing(_dice: random.Random, _victim: str) -> Fault:
    return Fault(0, "the job succeeded")


def exits(dice: random.Random, _victim: str) -> Fault:
    status = dice.choice([dice.randint(1, 255), 99, 100])
    return Fault(expected(status), f"ended with exit status {status}", f"time.sleep(0.3); sys.exit({status})")


def crashes(dice: random.Random, _victim: str) -> Fault:
    number = dice.choice([signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM, signal.SIGBUS])
    return Fault(128 + number, f"was killed by {number.name}", f"crash({number:d})")


def is_killed(dice: random.Random, victim: str) -> Fault:
    kind = dice.choice(["task", "agent", "guardian", "qrsh"])
    return Fault(KILLED, "SIGKILL", act=lambda job: kill(job, kind, signal.SIGKILL, victim))


def is_started_again(dice: random.Random, victim: str) -> Fault:
    part = f"times(1) or sys.exit({dice.randint(1, 255)})"
    if victim == "ps:0":
        return Fault(
            0, "asking Grid Engine to run the job again", f"{part}; wait()", options=["--requeue", "1"]
        )
    return Fault(0, "starting it again", part, options=["--restarts", "1"])


def is_not_missed(dice: random.Random, _victim: str) -> Fault:
    """A worker fails, the others go on."""
    status = dice.randint(1, 255)
    part = f"sys.exit({status})"
    return Fault(expected(status), f"exit status {status}", part, options=["--on-failure", "continue"])


def launcher_is_killed(_dice: random.Random, _victim: str) -> Fault:
    return Fault(KILLED, act=lambda job: kill(job, "launcher", signal.SIGKILL), early=True)


def launcher_is_signalled(dice: random.Random, _victim: str) -> Fault:
    number = dice.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    return Fault(128 + number, f"stopped by {number.name}", act=lambda job: kill(job, "launcher", number))


def delete(job: Job) -> None:
    job.cluster.root(MASTER, "qdel", job.id)


def is_deleted(_dice: random.Random, _victim: str) -> Fault:
    return Fault(KILLED, act=delete, early=True)


def is_deleted_with_notice(_dice: random.Random, _victim: str) -> Fault:
    return Fault(128 + signal.SIGUSR2, "the job is being deleted", act=delete, qsub=["-notify"])


def is_suspended(dice: random.Random, _victim: str) -> Fault:
    seconds = dice.uniform(0, 1.5 * LOST_AFTER)

    def act(job: Job) -> None:
        job.cluster.root(MASTER, "qmod", "-sj", job.id)
        time.sleep(seconds)
        job.cluster.root(MASTER, "qmod", "-usj", job.id)

    return Fault(0, "the job succeeded", act=act, early=True)


def other_host(job: Job, dice: random.Random) -> str:
    """A host on which the launcher does not run."""
    [launcher] = processes(job, "job_scripts/")
    return dice.choice([node for node in job.cluster.nodes if node != launcher.host])


def is_cut_off_for_a_while(dice: random.Random, _victim: str) -> Fault:
    def act(job: Job) -> None:
        host = other_host(job, dice)
        job.cluster.link(host, up=False)
        time.sleep(dice.uniform(0, LOST_AFTER / 2))
        job.cluster.link(host, up=True)

    return Fault(0, "the job succeeded", act=act)


def is_cut_off(dice: random.Random, _victim: str) -> Fault:
    def act(job: Job) -> None:
        host = other_host(job, dice)
        job.cluster.link(host, up=False)
        try:
            wait_until(lambda: "the job failed" in job.output, 3 * LOST_AFTER, "the job has ended")
        finally:
            job.cluster.link(host, up=True)

    return Fault(1, "is lost: nothing heard of", "time.sleep(60)", act=act)


def has_no_python(_dice: random.Random, _victim: str) -> Fault:
    return Fault(1, "cannot be run on node", options=["--python", "/opt/no/python3"])


FAULTS = [
    *(nothing, exits, crashes, is_killed, is_started_again, is_not_missed, launcher_is_killed),
    *(launcher_is_signalled, is_deleted, is_deleted_with_notice, is_suspended, is_cut_off_for_a_while),
    *(is_cut_off, has_no_python),
]


@pytest.mark.parametrize("number", range(JOBS), ids=lambda number: f"{SEED}-{number}")
def test_a_job_with_a_random_fault_ends_as_it_should(cluster: Cluster, number: int) -> None:
    dice = random.Random(f"{SEED} {number}")
    make = dice.choice(FAULTS)
    slots = dice.randint(4, 8)
    victims = [f"worker:{index}" for index in range(slots - 1)] + ["ps:0"] * (make != is_not_missed)
    victim = dice.choice(victims)
    fault = make(dice, victim)
    stubborn = dice.choice(["", "be_stubborn(); "])
    groups = dice.choice([[], [], ["--per-host"]])
    length = 60 if make == is_cut_off else 3
    job = play(
        Folder(cluster, f"chaos-{number}"),
        *([f"{victim}={stubborn}{fault.part}"] if fault.part else []),
        f"worker={stubborn}time.sleep({length})",
        options=["-v", "--grace", "1", "--lost-after", str(LOST_AFTER), *groups, *fault.options],
        slots=slots,
        qsub=fault.qsub,
    )
    if fault.act:
        if fault.early and dice.random() < 0.5:
            wait_until(lambda: processes(job, "job_scripts/"), 30, "the job has started")
        else:
            have_begun(job, slots)
        time.sleep(dice.uniform(0, 1))
        fault.act(job)
    job.wait()
    report = f"{make.__name__} {victim}\n{job.output}"
    assert job.status == fault.status, report
    assert fault.says in job.output, report
