"""The processes at whose other ends the agents are."""

from __future__ import annotations

import os
import queue
import sys

import pytest

from tf_submit import Event, Group, Link, Task, alternate_hosts

SAY_POLICY = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"]


def link(host: str = "node1", transport: str = "qrsh") -> Link:
    return Link(Group(host, (Task("worker", 0, host),), transport), [], queue.SimpleQueue[Event]())


@pytest.mark.parametrize(("transport", "policy"), [("qrsh", os.SCHED_BATCH), ("local", os.SCHED_OTHER)])
def test_only_a_qrsh_runs_as_a_batch_process(transport: str, policy: int) -> None:
    """A local agent would hand that on to its tasks."""
    started = link(transport=transport)
    started.start(SAY_POLICY)
    assert started.events.get(timeout=20).type == "gone"
    assert started.printed() == [str(policy)]
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_where_no_policy_can_be_chosen_qrsh_starts_with_the_usual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> int:
        raise OSError

    for name in ("sched_getscheduler", "sched_setscheduler"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            started = link()
            started.start(SAY_POLICY)
        assert started.events.get(timeout=20).type == "gone"
        assert started.printed() == [str(os.SCHED_OTHER)]


def test_what_was_not_started_yet_has_printed_nothing() -> None:
    assert link().printed() == []


def test_neighbours_in_the_order_of_starts_are_on_different_hosts_and_what_needs_no_qrsh_comes_last() -> None:
    links = [link("node1", "local"), link("node1"), link("node1"), link("node2"), link("node2")]
    order = [(each.group.host, each.group.transport) for each in alternate_hosts(links)]
    assert order == [*[("node2", "qrsh"), ("node1", "qrsh")] * 2, ("node1", "local")]
