"""A job whose agents play a part and whose clock moves by itself: for the tests of Supervisor."""

from __future__ import annotations

import heapq
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path

from tf_submit import (
    Allocation,
    Console,
    Decoder,
    Event,
    Group,
    Host,
    Job,
    JobFolder,
    Link,
    Options,
    ParallelEnvironment,
    Supervisor,
    TaskLog,
    make_plan,
)

TOO_LONG = 3600.0  # seconds of simulated time, after which a job counts as hanging


class Agent(Link):
    """A link without process: answers as a good agent does, save for the part that a test gives it."""

    def __init__(self, group: Group, logs: Sequence[TaskLog], simulation: Simulation) -> None:
        super().__init__(group, logs, simulation.events)
        self.simulation = simulation
        self.decoder = Decoder()
        self.told: list[tuple[float, str]] = []  # what it was told, and when
        self.running: set[int] = set()
        self.has_started = self.gone = False
        self.text = ""  # what its qrsh has printed
        # its part
        self.error: OSError | None = None  # when its process is started
        self.comes = True  # or never says hello
        self.refusal = ""  # why no task can run there
        self.failed_starts: list[tuple[int, str]] = []  # exit status and text of its qrsh, for each try
        self.exits: list[tuple[float, int, str]] = []  # seconds, status, last line, for each start of a task
        self.vanishes = float("inf")  # when nothing is heard of it any more
        self.stubborn = False  # its task survives the stop signal, for the grace time
        self.stays = False  # does not leave

    @property
    def words(self) -> list[str]:
        return [word for _, word in self.told]

    def when(self, word: str) -> float:
        """When it was told so for the first time."""
        return next(moment for moment, told in self.told if told == word)

    # ---- what the supervisor calls

    def start(self, command: list[str]) -> None:
        self.attempts += 1
        if self.error:
            raise self.error
        self.process = object()  # type: ignore[assignment]
        self.has_started = not self.failed_starts
        if self.failed_starts:
            status, self.text = self.failed_starts.pop(0)
            self.say(0.2, "gone", status=status, why="")

    def send(self, data: bytes) -> bool:
        for _, _, payload in self.decoder.feed(data):
            order = json.loads(payload)
            word = order.pop("type")
            self.told.append((self.simulation.clock, word))
            getattr(self, f"do_{word}", lambda **_: None)(**order)
        return True

    def flush(self) -> bool:
        return True

    def hang_up(self) -> None:
        pass

    def cut(self) -> None:
        self.gone = True

    def join(self, seconds: float) -> None:
        pass

    def printed(self) -> list[str]:
        return self.text.splitlines()

    # ---- what it does

    def say(self, after: float, word: str, **fields: object) -> None:
        at = self.simulation.clock + after
        if at < self.vanishes:
            self.simulation.schedule(at, Event(self, word, fields))

    def do_greet(self, gpus: list[int], **_: object) -> None:
        if self.refusal:
            self.say(0.3, "refuse", why=self.refusal)
        elif self.comes and self.has_started:
            ports = list(range(2222, 2222 + len(gpus)))
            found = {"topology": [[0, 0, 0, 0]], "mask": [0], "environment": {}, "leases": [[] for _ in gpus]}
            self.say(0.3, "hello", address=self.group.host, ports=ports, pid=1, **found)

    def do_run(self, task: int, **_: object) -> None:
        self.running.add(task)
        self.say(0.01, "started", task=task, pid=2)
        if self.exits:
            seconds, status, line = self.exits.pop(0)
            self.end(seconds, task, status, line)

    def end(self, after: float, task: int, status: int, line: str = "") -> None:
        if line:
            self.logs[task].write(2, f"{line}\n".encode())
        self.say(after, "exit", task=task, status=status, cpu=1.0, memory=1, why="")

    def do_stop(self, tasks: list[int]) -> None:
        for task in tasks:
            grace = self.simulation.options.grace
            self.end(grace if self.stubborn else 0.1, task, -9 if self.stubborn else -15)

    def do_kill(self) -> None:
        for task in self.running:
            self.end(0.1, task, -9)

    def do_bye(self) -> None:
        if not self.stays:
            self.say(0.1, "gone", status=0, why="")


class Simulation(Supervisor):
    """A job on ``slots`` of node1, node2 and so on, in the folder ``path``; the first task is ps:0."""

    def __init__(
        self,
        path: Path,
        slots: Sequence[int] = (2, 1),
        options: Options | None = None,
        pe: ParallelEnvironment | None = None,
    ) -> None:
        self.clock = 0.0
        self.agenda: list[tuple[float, int, Event]] = []
        self.order = itertools.count()
        (path / "train.py").touch()
        (path / "qrsh").touch(0o755)
        self.output = path / "output"
        descriptor = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        console = Console("never", 1, descriptor, descriptor, {})
        options = options or Options(script=(str(path / "train.py"),))
        hosts = tuple(Host(f"node{number}", count) for number, count in enumerate(slots, start=1))
        allocation = Allocation("17", "train", hosts)
        pe = pe or ParallelEnvironment("tensorflow")
        environ = {"SGE_BINARY_PATH": str(path)}
        folder = JobFolder.create("train", "17", str(path))
        job = Job(options, environ, allocation, pe, make_plan(allocation, pe, options), console, folder)
        job.program = b""
        super().__init__(job)

    def agent(self, name: str) -> Agent:
        """The agent of a task."""
        return next(run.link for run in self.runs if run.task.name == name)  # type: ignore[return-value]

    @property
    def printed(self) -> str:
        return self.output.read_text()

    def schedule(self, at: float, event: Event | float) -> None:
        """An event at some time; a number means that the launcher is suspended for so many seconds."""
        heapq.heappush(self.agenda, (at, next(self.order), event))

    # ---- the seams of Supervisor

    def now(self) -> float:
        return self.clock

    def connect(self, group: Group) -> Link:
        return Agent(group, self.job.open_logs(group), self)

    def keep_alive(self) -> None:
        """Whoever has not vanished is heard at any time: see ``wait``."""

    def wait(self, seconds: float) -> Event | None:
        assert self.clock < TOO_LONG, "the job hangs"
        for agent in self.links:
            if self.clock < agent.vanishes:
                agent.heard = self.clock
        if not self.agenda or self.agenda[0][0] > self.clock + seconds:
            self.clock += seconds
            return None
        at, _, event = heapq.heappop(self.agenda)
        self.clock = max(self.clock, at)
        if isinstance(event, float):
            self.clock += event
            return None
        return event
