"""What pinning tasks to cores is worth on this machine: steps per second with it and without, side by side.

    python tests/bench/pinning.py [PAIRS]

One job of a parameter server and two workers trains a small network all the time, while all its threads are
in turn pinned, where `tf_submit.py --bind cores` put them, and free to run on any CPU. Each turn takes some
seconds; two turns are a pair. The figures are medians over the turns, for both workers together or for each
of them; a worker's CPUs are those that its threads really ran on.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TF_SUBMIT = Path(__file__).resolve().parents[2] / "tf_submit.py"
TURN = 4.0  # seconds; all tasks change at the same times of the clock
SETTLE = 0.5  # seconds at the start of a turn that do not count
SAMPLE = 0.02  # seconds between two looks at where the threads run
PIXELS, HIDDEN, CLASSES, BATCH = 784, 100, 10, 100  # the network: as for the digits of MNIST


# ---- a task


def turn_now() -> int:
    """Number of the turn: even ones are free, odd ones pinned."""
    return int(time.time() / TURN)


def threads() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]


def take_turns(pinned: set[int]) -> None:
    """A thread of each task: puts all threads, new ones too, where they belong in a turn."""
    everywhere = set(range(os.cpu_count() or 1))
    while True:
        for thread in threads():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, pinned if turn_now() % 2 else everywhere)
        time.sleep(SETTLE / 5)


class Cpus:
    """The CPUs on which threads of this process ran, as a thread of its own sees them."""

    def __init__(self) -> None:
        self.seen: dict[int, set[int]] = defaultdict(set)  # by turn
        self.ran: dict[int, int] = {}  # nanoseconds on a CPU, by thread
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self) -> None:
        while True:
            turn, is_settled = turn_now(), time.time() % TURN > SETTLE
            for thread in threads():
                with suppress(OSError):
                    self.look_at(thread, turn if is_settled else None)
            time.sleep(SAMPLE)

    def look_at(self, thread: int, turn: int | None) -> None:
        """proc_pid_stat(5): a thread that has not run since the last look says where it ran before that."""
        folder = Path(f"/proc/self/task/{thread}")
        ran = int((folder / "schedstat").read_text().split()[0])
        processor = int((folder / "stat").read_text().rpartition(")")[2].split()[36])
        if turn is not None and ran > self.ran.get(thread, ran):
            self.seen[turn].add(processor)
        self.ran[thread] = ran


def train(cluster: dict, role: str, index: int) -> Iterator[None]:
    """Asynchronous training with parameter servers: next() is a step."""
    import numpy
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    server = tf.train.Server(cluster, job_name=role, task_index=index)
    if role == "ps":
        server.join()
    with tf.device(
        tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")
    ):
        images = tf.placeholder(tf.float32, [BATCH, PIXELS])
        labels = tf.placeholder(tf.int32, [BATCH])
        hidden = tf.sigmoid(
            images @ tf.get_variable("w1", [PIXELS, HIDDEN]) + tf.get_variable("b1", [HIDDEN])
        )
        scores = hidden @ tf.get_variable("w2", [HIDDEN, CLASSES]) + tf.get_variable("b2", [CLASSES])
        cost = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores))
        step = tf.train.GradientDescentOptimizer(0.01).minimize(cost)
    random = numpy.random.default_rng(index)
    batch = {images: random.random((BATCH, PIXELS)), labels: random.integers(CLASSES, size=BATCH)}
    initialize, missing = tf.global_variables_initializer(), tf.report_uninitialized_variables()
    filters = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
    with tf.Session(server.target, config=filters) as session:
        if index == 0:
            session.run(initialize)
        while session.run(missing).size:
            time.sleep(0.1)
        while True:
            session.run(step, batch)
            yield


def run_task(config: dict, pairs: int) -> None:
    """A task of the job. A worker prints for each turn its steps per second and the number of its CPUs."""
    threading.Thread(target=take_turns, args=(os.sched_getaffinity(0),), daemon=True).start()
    steps = train(config["cluster"], config["task"]["type"], config["task"]["index"])
    next(steps)
    cpus = Cpus()
    first = turn_now() // 2 * 2 + 2
    for turn in range(first, first + 2 * pairs):
        while time.time() < turn * TURN + SETTLE:
            next(steps)
        began, cpu, count = time.time(), time.process_time(), 0
        while turn_now() == turn:
            next(steps)
            count += 1
        seconds, cpu = time.time() - began, time.process_time() - cpu
        found = {"turn": turn, "rate": count / seconds, "cpu": cpu / count, "cpus": len(cpus.seen[turn])}
        print(json.dumps(found), flush=True)


# ---- the benchmark


def measure(pairs: int) -> dict[int, dict[int, dict]]:
    """What the workers printed, by turn and worker."""
    options = ["--local", "3", "--bind", "cores", "--color", "never", __file__, str(pairs)]
    with tempfile.TemporaryDirectory() as folder:
        job = subprocess.run(
            [sys.executable, TF_SUBMIT, *options], cwd=folder, capture_output=True, text=True
        )
    if job.returncode:
        sys.exit(f"the job failed:\n{job.stdout}{job.stderr}")
    found: dict[int, dict[int, dict]] = defaultdict(dict)
    for worker, line in re.findall(r"^worker:(\d+)@\S+ \| ({.*})$", job.stdout, re.MULTILINE):
        found[json.loads(line)["turn"]][int(worker)] = json.loads(line)
    return found


def report(turns: dict[int, dict[int, dict]]) -> None:
    both = {turn: list(workers.values()) for turn, workers in sorted(turns.items()) if len(workers) == 2}
    rates = {turn: sum(worker["rate"] for worker in workers) for turn, workers in both.items()}
    print("threads  steps/s  CPU ms per step  CPUs of a worker")
    for kind, name in enumerate(("free", "pinned")):
        of_kind = [worker for turn, workers in both.items() if turn % 2 == kind for worker in workers]
        rate = statistics.median(rates[turn] for turn in rates if turn % 2 == kind)
        cpu, cpus = (statistics.median(worker[field] for worker in of_kind) for field in ("cpu", "cpus"))
        print(f"{name:7} {rate:8.1f}  {1000 * cpu:15.2f}  {cpus:16g}")
    ratios = sorted(rates[turn + 1] / rates[turn] for turn in rates if turn % 2 == 0 and turn + 1 in rates)
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} pairs"
    print(f"steps/s, pinned to free: {statistics.median(ratios):.2f} (median; {spread})")


if __name__ == "__main__":
    pairs = int(sys.argv[1]) if sys.argv[1:] else 8
    if "TF_CONFIG" in os.environ:
        run_task(json.loads(os.environ["TF_CONFIG"]), pairs)
    else:
        report(measure(pairs))
