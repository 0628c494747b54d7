"""What the launcher's work costs per task, against the number of tasks.

    python tests/bench/size.py [HOSTS ...]

Jobs on hosts of 28 cores with two threads each, a task per core; the agents are simulated, the clock is
virtual, as in the unit tests, and files are in memory, so only CPU time counts: of three runs the fastest.
"plan" turns slots into tasks, "assign" the agents' answers into addresses, cores and the cluster spec; "all"
is the whole job, its start, two rounds of reports and its end, with what the simulation itself takes. The
bars show the time per task.
"""

from __future__ import annotations

import heapq
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCH.parents[1]), str(BENCH.parent / "unit")]

import simulation  # noqa: E402

import tf_submit  # noqa: E402

SLOTS = 28
TOPOLOGY = [[cpu, cpu % SLOTS // 14, cpu % SLOTS, cpu % SLOTS // 14] for cpu in range(2 * SLOTS)]
REPORTS = (10.0, 20.0)  # seconds after the start of a task
END = 30.0
FOREVER = 1e9
MEMORY = "/dev/shm"
BAR = 50  # columns


class Agent(simulation.Agent):
    """On a host of 28 cores, bound to a core for each of its tasks."""

    def send(self, data: bytes) -> bool:
        """Reads all messages but the cluster spec, which is read on the nodes, not by the launcher."""
        return data.startswith(b'{"type": "share"', tf_submit.FRAME.size) or super().send(data)

    def do_greet(self, gpus: list[int], **_: object) -> None:
        first = self.simulation.cores.setdefault(self.group.host, 0)
        self.simulation.cores[self.group.host] += len(gpus)
        cores = range(first, first + len(gpus))
        self.say(
            0.3,
            "hello",
            address=self.group.host,
            ports=[2222 + core for core in cores],
            topology=TOPOLOGY,
            mask=[*cores, *(core + SLOTS for core in cores)],
            environment={"SGE_BINDING": " ".join(map(str, cores))},
            leases=[[] for _ in gpus],
            pid=1,
        )

    def do_run(self, task: int, **_: object) -> None:
        self.say(0.01, "started", task=task, pid=2)
        for seconds in REPORTS if task == 0 else ():
            self.say(seconds, "pong", usage=[[seconds, 1 << 30] for _ in self.group.tasks])
        self.end(END, task, 0)


class Job(simulation.Simulation):
    """Takes no time of its own for agents that say nothing."""

    def __init__(self, path: Path, hosts: int, per_host: bool) -> None:
        self.cores: dict[str, int] = {}  # given away, by host
        script = (str(path / "train.py"),)
        options = tf_submit.Options(
            script, ps=0, per_host=per_host, lost_after=FOREVER, start_timeout=FOREVER
        )
        super().__init__(path, [SLOTS] * hosts, options)

    def connect(self, group: tf_submit.Group) -> tf_submit.Link:
        return Agent(group, self.job.open_logs(group), self)

    def wait(self, seconds: float) -> tf_submit.Event | None:
        if not self.agenda or self.agenda[0][0] > self.clock + seconds:
            self.clock += seconds
            return None
        at, _, event = heapq.heappop(self.agenda)
        self.clock = max(self.clock, at)
        return event


class Timer:
    """CPU time of this process in calls of some functions."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.process_time()
            try:
                return function(*arguments)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began

        return call


def measure(hosts: int, per_host: bool) -> dict[str, float]:
    """Seconds for a job: of three the fastest."""
    return min((run_once(hosts, per_host) for _ in range(3)), key=lambda seconds: seconds["all"])


def run_once(hosts: int, per_host: bool) -> dict[str, float]:
    timer = Timer()

    def run(path: Path) -> int:
        job = Job(path, hosts, per_host)
        job.job.place = timer.timed("assign", job.job.place)  # type: ignore[method-assign]
        return job.run()

    simulation.make_plan = timer.timed("plan", tf_submit.make_plan)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        if timer.timed("all", run)(Path(folder)):
            sys.exit(f"the job failed: {(Path(folder) / 'output').read_text()[-2000:]}")
    return timer.seconds


def rows(hosts: Sequence[int], per_host: bool) -> list[tuple[str, ...]]:
    found = [(SLOTS * each, measure(each, per_host)) for each in hosts]
    cost = [1e6 * seconds["all"] / tasks for tasks, seconds in found]  # microseconds
    return [
        (
            str(tasks),
            *(f"{seconds[name]:.3f}" for name in ("plan", "assign", "all")),
            f"{each:.0f}",
            "#" * round(BAR * each / max(cost)),
        )
        for (tasks, seconds), each in zip(found, cost)
    ]


def main(*hosts: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sizes = [int(each) for each in hosts] or [11, 43, 150, 300]
    header = ("tasks", "plan [s]", "assign [s]", "all [s]", "per task [us]", "")
    for title, per_host in (("one agent per task", False), ("one agent per host", True)):
        print(f"{title}:")
        for line in tf_submit.align([header, *rows(sizes, per_host)], right=header[:-1]):
            print(f"  {line}")


if __name__ == "__main__":
    main(*sys.argv[1:])
