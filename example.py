#!/usr/bin/env python3
"""Handwritten digits on a TensorFlow cluster: data-parallel training with parameter servers.

Every process of the cluster runs this script. The ps processes hold the parameters of the model. Each
worker builds the same graph for itself (between-graph replication), has its share of the training images
and, step by step, reads the parameters from the ps, computes the gradient for a batch and sends the ps the
change to make. Nobody waits for anybody (asynchronous training) unless --sync asks for it. Worker 0 is the
chief, which also initialises the parameters and saves checkpoints.

On Grid Engine:
    qsub -pe tensorflow 4 -binding linear:1 tf_submit.py example.py --epochs 6
By hand, once for each process of the cluster; this one on node2:
    example.py -s node1:2222 -w node2:2222,node3:2222 --job_name=worker --task_index=0
Alone, in a single process:
    example.py
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sample_digits import mnist
from sample_digits.mnist import CLASSES, PIXELS, InputError

HIDDEN = 100  # the model has 784-100-10 neurons, sigmoid and softmax
PATIENCE = 30.0  # seconds for which the chief, when done, waits for workers that make no progress
STEPS_PER_CALL = 10  # a call of session.run() costs about as much as a training step, so it makes several
tf: Any  # tensorflow.compat.v1: graphs and sessions, which TensorFlow's parameter servers are made for


class Task(NamedTuple):
    """One process of a cluster."""

    ps: Sequence[str]  # addresses such as node1:2222
    workers: Sequence[str]
    role: str
    number: int

    @property
    def is_chief(self) -> bool:
        return (self.role, self.number) == ("worker", 0)

    def start_server(self) -> Any:
        """Through its server a process runs operations on the others, and they on it."""
        cluster = {"ps": self.ps, "worker": self.workers}
        try:
            return tf.train.Server(cluster, job_name=self.role, task_index=self.number)
        except (tf.errors.OpError, ValueError) as error:
            raise InputError(f"{self.role} {self.number} of {cluster} cannot serve: {error}") from None


ALONE = Task([], ["this process"], "worker", 0)

# --- the graph ----------------------------------------------------------------------------------


def new_parameters(stddev: float | None) -> Any:
    """All weights (normally distributed) and biases (zero) of the model, in one vector.

    In one, because each variable costs a message from the ps and a message to it in every step.
    """
    layers = []
    for rows, columns in ((PIXELS, HIDDEN), (HIDDEN, CLASSES)):
        weights = tf.random.stateless_normal([rows * columns], seed=[rows, columns])
        layers += [weights * (stddev or rows**-0.5), tf.zeros([columns])]
    return tf.concat(layers, 0)


def model(parameters: Any, pixels: Any) -> Any:
    """Scores [batch, 10] of pixels [batch, 784]; their softmax are the probabilities of the digits."""
    w1, b1, w2, b2 = tf.split(parameters, [PIXELS * HIDDEN, HIDDEN, HIDDEN * CLASSES, CLASSES])
    hidden = tf.sigmoid(tf.matmul(pixels, tf.reshape(w1, [PIXELS, HIDDEN])) + b1)
    return tf.matmul(hidden, tf.reshape(w2, [HIDDEN, CLASSES])) + b2


def count_right(scores: Any, labels: Any) -> Any:
    return tf.reduce_sum(tf.cast(tf.equal(tf.argmax(scores, 1, output_type=tf.int32), labels), tf.float32))


class Replica:
    """A worker's graph for asynchronous training: its variables on the ps, all else here.

    The vector of parameters is cut into parts, one on each ps; `steps` counts the batches of each worker. In
    an exchange a worker reads the parameters, trains for --local-steps, and sends the change that it made.
    What is between sending and reading again is placed beside `steps`, so that it costs no more messages.
    """

    def __init__(self, task: Task, options: argparse.Namespace, mean_image: Any) -> None:
        self.task, self.workers, self.local_steps = task, len(task.workers), options.local_steps
        self.rate = options.learning_rate or 4 / (2 if options.sync else max(2, self.workers))
        self.mean_image = mean_image
        here, number_of_ps = f"/job:worker/task:{task.number}", max(1, len(task.ps))
        with tf.device(tf.train.replica_device_setter(len(task.ps), worker_device=here)):
            self.images = tf.placeholder(tf.uint8, [None, None, PIXELS])  # [step, batch, pixel]
            self.labels = tf.placeholder(tf.int32, [None, None])  # [step, batch]
            self.first = new_parameters(options.init_stddev), tf.zeros([self.workers], tf.int64)
            cut = tf.fixed_size_partitioner(number_of_ps)
            self.parts = list(tf.get_variable("parameters", initializer=self.first[0], partitioner=cut))
            self.steps = tf.get_variable("steps", initializer=self.first[1])
            self.initialise = tf.global_variables_initializer()
            self.uninitialised = tf.report_uninitialized_variables()
            self.saver = tf.train.Saver()
            self.right = count_right(model(tf.concat(self.parts, 0), self.pixels(0)), self.labels[0])
            self.exchanges: list[Any] = []  # each begins after the one before it: to run one is to run all
            for first in range(0, max(STEPS_PER_CALL, self.local_steps), self.local_steps):
                with tf.name_scope(f"exchange_{len(self.exchanges)}"):
                    before = [steps for steps, _, _ in self.exchanges[-1:]]
                    self.exchanges.append(self.exchange(before, range(first, first + self.local_steps)))

    def pixels(self, step: int) -> Any:
        return (tf.cast(self.images[step], tf.float32) - self.mean_image) / 255

    def exchange(self, before: list[Any], steps: range) -> Any:
        """Gives `steps` after this exchange, and cost and number of right answers of its last batch."""
        with tf.control_dependencies(self.enter(before)):  # what is defined inside runs after these
            parameters = tf.concat([part.read_value() for part in self.parts], 0)
        changes = []
        for step in steps:
            scores, labels = model(parameters, self.pixels(step)), self.labels[step]
            costs = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
            cost = tf.reduce_mean(costs)
            changes += tf.gradients(self.rate * cost, parameters)
            parameters -= changes[-1]
        return self.send(tf.add_n(changes)), cost, count_right(scores, labels)

    def enter(self, before: list[Any]) -> list[Any]:
        """What has to be done before an exchange reads the parameters."""
        return before

    def send(self, change: Any) -> Any:
        with tf.control_dependencies(self.subtract(change)), tf.device(self.steps.device):
            mine = tf.one_hot(self.task.number, self.workers, self.local_steps, dtype=tf.int64)
            return self.steps.assign_add(mine)

    def subtract(self, change: Any) -> list[Any]:
        pieces = tf.split(change, [part.shape[0] for part in self.parts])
        return [part.assign_sub(piece, read_value=False) for part, piece in zip(self.parts, pieces)]

    def admit(self, workers: Sequence[int]) -> list[Any]:
        """What to run before these workers start, or start again: nothing, they come and go as they like."""
        return []


class SyncReplica(Replica):
    """A worker's graph for synchronous training, in rounds.

    The changes of all workers meet in an accumulator on the first ps; when all are there, the chief applies
    their mean. Every worker has a gate, a queue in which it finds the number of the round that it may begin,
    so that none can take another's place in a round. A change that comes late for its round, after a restart,
    is dropped by the accumulator.
    """

    def __init__(self, task: Task, options: argparse.Namespace, mean_image: Any) -> None:
        with tf.device("/job:ps/task:0" if task.ps else None):
            self.mean = tf.ConditionalAccumulator(tf.float32, shared_name="mean")
            names = [f"gate_{worker}" for worker in range(len(task.workers))]
            self.gates = [tf.FIFOQueue(4, [tf.int64], [[]], shared_name=name) for name in names]
        super().__init__(task, options, mean_image)

    def enter(self, before: list[Any]) -> list[Any]:
        with tf.control_dependencies(before), tf.device(self.steps.device):
            self.round = self.gates[self.task.number].dequeue()
        return [self.round]

    def send(self, change: Any) -> Any:
        with tf.device(self.steps.device):
            done = [self.mean.apply_grad(change, self.round)]
            steps = tf.fill([self.workers], (self.round + 1) * self.local_steps)
            if self.task.is_chief:
                with tf.control_dependencies(done):
                    applied = self.subtract(self.mean.take_grad(self.workers))  # waits for all workers
                with tf.control_dependencies(applied), tf.control_dependencies([self.steps.assign(steps)]):
                    done = [gate.enqueue(self.round + 1) for gate in self.gates]
            with tf.control_dependencies(done):
                return tf.identity(steps)

    def admit(self, workers: Sequence[int]) -> list[Any]:
        now = tf.reduce_max(self.steps) // self.local_steps
        admitted = [self.mean.set_global_step(now)] if self.task.is_chief else []
        for gate in (self.gates[worker] for worker in workers):
            with tf.control_dependencies([gate.dequeue_many(gate.size())]):
                admitted.append(gate.enqueue(now))
        return admitted


# --- training -----------------------------------------------------------------------------------


class Training:
    """One worker's training. The chief also initialises, restores and saves it.

    In an epoch each worker trains on all images of its share.
    """

    session: Any = None
    cost, seconds = math.nan, 0.0

    def __init__(self, task: Task, options: argparse.Namespace, images: Any, labels: Any) -> None:
        self.task, self.options = task, options
        self.images, self.labels = mnist.take_share(images, labels, task.number, len(task.workers))
        self.batch = min(options.batch_size, len(self.labels))
        self.per_epoch = len(self.labels) // self.batch  # steps of one worker
        self.quota = options.epochs * self.per_epoch
        self.target = task.start_server().target if task.ps else ""
        replica = SyncReplica if options.sync else Replica
        self.replica = replica(task, options, images.mean(axis=0, dtype=np.float32))
        self.saved, self.saving = time.monotonic(), threading.Lock()
        self.writer = None
        if options.log_dir:
            graph = tf.get_default_graph() if task.is_chief else None
            self.writer = tf.summary.FileWriter(str(options.log_dir / f"worker-{task.number}"), graph)

    def run(self, test_images: Any, test_labels: Any) -> float:
        """Train, from wherever the training is. Gives the accuracy on the test images."""
        while True:
            try:
                self.session = self.open_session()
                self.train()
                if self.task.is_chief:
                    self.wait_for_others()
                    self.save()
                return self.evaluate(test_images, test_labels)
            except (tf.errors.AbortedError, tf.errors.UnavailableError) as error:
                print(f"Lost a ps, waiting until it is back: {error.message}", flush=True)

    def open_session(self) -> Any:
        """A session with all variables ready: the chief initialises them if need be, the others wait.

        A restarted chief that finds the ps alive goes on from there, because every checkpoint is older.
        """
        config = tf.ConfigProto(allow_soft_placement=True)
        # Without this a session waits until all workers have started, and fails when one is lost.
        config.device_filters[:] = ["/job:ps", f"/job:worker/task:{self.task.number}"]
        config.graph_options.rewrite_options.disable_meta_optimizer = True  # takes memory, finds nothing
        config.gpu_options.allow_growth = True
        session, replica = tf.Session(self.target, config=config), self.replica
        admit = range(replica.workers) if self.task.is_chief else [self.task.number]
        while session.run(replica.uninitialised).size:
            if self.task.is_chief:
                self.initialise(session)
                admit = [self.task.number]
            else:
                time.sleep(0.2)
        session.run(replica.admit(admit))
        return session

    def initialise(self, session: Any) -> None:
        """All variables, from the last checkpoint if there is one."""
        folder, replica, values = self.options.checkpoint_dir, self.replica, {}
        if checkpoint := folder and tf.train.latest_checkpoint(str(folder)):
            print(f"Resuming from {checkpoint}", flush=True)
            parameters, steps = (tf.train.load_variable(checkpoint, name) for name in ("parameters", "steps"))
            if len(steps) != replica.workers:  # then all have done the same part of it
                steps = np.full(replica.workers, steps.sum() // replica.workers)
            values = dict(zip(replica.first, (parameters, steps)))
        session.run(replica.initialise, values)

    def save(self) -> None:
        """Save a checkpoint, if there is a folder for it and something to save."""
        if self.options.checkpoint_dir and self.session:
            with self.saving:
                path, step = self.options.checkpoint_dir / "model.ckpt", self.steps().sum()
                self.replica.saver.save(self.session, str(path), step, write_meta_graph=False)
            self.saved = time.monotonic()

    def steps(self) -> Any:
        """How many steps each worker has made."""
        return self.session.run(self.replica.steps)

    def stop(self) -> None:
        """Save and end, though training goes on in another thread, or waits for the dead."""
        try:
            self.save()
            print("Stopped by SIGTERM", flush=True)
        finally:
            os._exit(128 + signal.SIGTERM)

    def train(self) -> None:
        """Train until every image of the share had its turn in every epoch."""
        replica, number, local_steps = self.replica, self.task.number, self.options.local_steps
        step = int(self.steps()[number])
        self.began = self.reported = time.monotonic(), step
        batches = mnist.batches(len(self.labels), self.batch, number, step)
        while step < self.quota:
            exchanges = replica.exchanges[: math.ceil((self.quota - step) / local_steps)]
            chosen = np.array([next(batches) for _ in range(len(exchanges) * local_steps)])
            feed = {replica.images: self.images[chosen], replica.labels: self.labels[chosen]}
            steps, self.cost, right = self.session.run(exchanges[-1], feed)
            step = int(steps[number])
            if step - self.reported[1] >= self.options.report_every or step >= self.quota:
                self.report(step, int(steps.sum()), right / self.batch)
            if self.task.is_chief and time.monotonic() - self.saved > self.options.checkpoint_every:
                self.save()
        self.seconds = time.monotonic() - self.began[0]

    def report(self, step: int, all_steps: int, accuracy: float) -> None:
        """A line on what is behind and what is ahead, and a point in each of TensorBoard's curves."""
        now, live = time.monotonic(), sys.stdout.isatty()
        seconds = (now - self.reported[0]) / (step - self.reported[1])  # per step
        left = (self.quota - step) * (now - self.began[0]) / (step - self.began[1])
        epoch, batch = divmod(step - 1, self.per_epoch)
        line = (
            f"Worker: {self.task.number},  Step: {all_steps},  Epoch: {epoch + 1:2d},  "
            f"Batch: {batch + 1:3d} of {self.per_epoch:3d},  Cost: {self.cost:.4f},  "
            f"AvgTime: {1000 * seconds:.2f}ms,  Left: {left:.0f}s"
        )
        line = f"\r{line}\033[K" if live else line
        print(line, end="" if live and step < self.quota else "\n", flush=True)
        if self.writer:
            points = {"cost": self.cost, "accuracy": accuracy, "images_per_second": self.batch / seconds}
            values = [tf.Summary.Value(tag=tag, simple_value=value) for tag, value in points.items()]
            self.writer.add_summary(tf.Summary(value=values), all_steps)
            self.writer.flush()
        self.reported = now, step

    def wait_for_others(self) -> None:
        """Until all workers are done, or none makes progress any more: some may be gone for good."""
        last, since = self.steps(), time.monotonic()
        while (steps := self.steps()).min() < self.quota and time.monotonic() - since < PATIENCE:
            if (steps != last).any():
                last, since = steps, time.monotonic()
            time.sleep(0.1)
        if late := np.flatnonzero(steps < self.quota).tolist():
            print(f"Not waiting any longer for workers that make no progress: {late}", flush=True)

    def evaluate(self, images: Any, labels: Any) -> float:
        """The part of the test images that the model recognises; in pieces, which takes less memory."""
        right = 0.0
        for piece in (slice(start, start + 1000) for start in range(0, len(labels), 1000)):
            feed = {self.replica.images: images[None, piece], self.replica.labels: labels[None, piece]}
            right += self.session.run(self.replica.right, feed)
        return right / len(labels)


# --- this process's place in the cluster --------------------------------------------------------


def find_task(options: argparse.Namespace, tf_config: str) -> Task:
    """The task that the command line names, else that of TF_CONFIG, else a process on its own."""
    given = {"-s": options.ps, "-w": options.worker, "--job_name": options.job_name}
    missing = [flag for flag, value in given.items() if not value]
    if len(missing) == len(given):
        task = read_tf_config(tf_config)
    elif missing:
        raise InputError(f"{', '.join(missing)} missing: a cluster takes {', '.join(given)} and --task_index")
    else:
        task = Task(options.ps.split(","), options.worker.split(","), options.job_name, options.task_index)
    tasks = {"ps": task.ps, "worker": task.workers}.get(task.role, [])
    if not 0 <= task.number < len(tasks):
        raise InputError(f"no {task.role} {task.number} among ps {task.ps} and workers {task.workers}")
    if not task.ps and task != ALONE:
        raise InputError("the cluster has no ps to hold the parameters")
    return task


def read_tf_config(text: str) -> Task:
    """Task of {"cluster": {"ps": ["host:port"], "worker": [...]}, "task": {"type": "ps", "index": 0}}.

    A chief becomes worker 0 and the workers move up by one. No cluster means a process on its own.
    """
    try:
        config = json.loads(text or "{}")
        cluster = config.get("cluster")
        if not cluster:
            return ALONE
        chief, role, number = cluster.get("chief", []), config["task"]["type"], int(config["task"]["index"])
        number += len(chief) if role == "worker" else 0
        workers = chief + cluster.get("worker", [])
        return Task(cluster.get("ps", []), workers, role.replace("chief", "worker"), number)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"TF_CONFIG cannot be read ({type(error).__name__}: {error}): {text}") from None


# --- command line -------------------------------------------------------------------------------


def above_0(kind: Any, text: str) -> Any:
    with contextlib.suppress(ValueError):
        if 0 < kind(text) < math.inf:
            return kind(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a {kind.__name__} above 0")


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    count, number = functools.partial(above_0, int), functools.partial(above_0, float)
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument_group("cluster (else as in TF_CONFIG, else a single process)").add_argument
    add("-s", "--server", "-m", "--master", dest="ps", metavar="HOST:PORT,...", help="all ps")
    add("-w", "--worker", metavar="HOST:PORT,...", help="all workers")
    add("--job_name", choices=("ps", "worker"), help="the role of this process")
    add("--task_index", type=int, default=0, metavar="I", help="which of them it is, from 0")
    add = parser.add_argument_group("training").add_argument
    add("--epochs", type=count, default=6, metavar="N", help="passes of all workers together (6)")
    add("--batch-size", type=count, default=100, metavar="N", help="images per step and worker (100)")
    add("--learning-rate", type=number, metavar="X", help="(2, or 4 / workers if that is less; --sync: 2)")
    add("--init-stddev", type=number, metavar="X", help="of the first weights (1 / sqrt(inputs))")
    add("--local-steps", type=count, default=1, metavar="K", help="steps between exchanges with the ps (1)")
    add("--sync", action="store_true", help="train in lockstep, with the mean of all workers' changes")
    add = parser.add_argument_group("files").add_argument
    add("--data-dir", type=Path, metavar="DIR", help=f"the four IDX files ({mnist.USUAL}, else a sample)")
    add("--download", nargs="?", const=mnist.MIRROR, metavar="URL", help=f"fetch files ({mnist.MIRROR})")
    job_dir = os.environ.get("TF_SUBMIT_JOB_DIR")
    for flag, name in (("--checkpoint-dir", "checkpoints"), ("--log-dir", "tensorboard")):
        default = Path(job_dir, name) if job_dir else None
        add(flag, type=Path, default=default, metavar="DIR", help=f"({name} in the job's folder, or none)")
    add("--checkpoint-every", type=number, default=30, metavar="SECONDS", help="(30)")
    add("--report-every", type=count, default=100, metavar="N", help="steps per line and per point (100)")
    return parser.parse_args(arguments)


def import_tensorflow() -> None:
    """When arguments and data are known to be good, since it takes seconds."""
    global tf
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.modules.setdefault("keras", None)  # type: ignore[arg-type]  # else imported as well, for nothing
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()


def serve(task: Task) -> None:
    """A ps only answers the workers."""
    import_tensorflow()
    server = task.start_server()
    print(f"ps {task.number} serves at {task.ps[task.number]} until it is stopped", flush=True)
    server.join()


def work(task: Task, options: argparse.Namespace) -> None:
    if task.is_chief and options.checkpoint_dir:
        with mnist.reading(options.checkpoint_dir):
            options.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    images, labels, *test = mnist.choose(options.data_dir, options.download)
    import_tensorflow()
    with ThreadPoolExecutor(1) as thread:  # this one must hear signals, which session.run() would not
        training = thread.submit(Training, task, options, images, labels).result()
        del images, labels
        if task.is_chief:
            signal.signal(signal.SIGTERM, lambda *_: training.stop())
        accuracy = thread.submit(training.run, *test).result()
    print(f"Test-Accuracy: {accuracy:.4f}\nTotal Time: {training.seconds:.2f}s", flush=True)
    print(f"Final Cost: {training.cost:.4f}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler has no chance inside TensorFlow
    options = parse_arguments(arguments)
    try:
        task = find_task(options, os.environ.get("TF_CONFIG", ""))
        serve(task) if task.role == "ps" else work(task, options)
    except InputError as error:
        print(f"example.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
