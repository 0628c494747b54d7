#!/usr/bin/env python3
"""Handwritten digits on a TensorFlow cluster: data-parallel training with parameter servers.

Every process of the cluster runs this script. The ps processes hold the parameters of the model. Each
worker builds the same graph for itself (between-graph replication), takes its share of the training
images and, step by step, reads the parameters from the ps, computes the gradient for a batch and sends
the ps the change to make. Nobody waits for anybody (asynchronous training) unless --sync asks for it.
Worker 0 is the chief, which also initialises the parameters and saves checkpoints.

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
import gzip
import hashlib
import itertools
import json
import math
import os
import signal
import sys
import threading
import time
import urllib.request
import zlib
from collections.abc import Iterable, Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

PIXELS, HIDDEN, CLASSES = 28 * 28, 100, 10  # the model: 784-100-10, sigmoid and softmax
STEPS_PER_CALL = 10  # a call of session.run() costs about as much as a training step, so it makes several
PATIENCE = 30.0  # seconds for which the chief, when done, waits for workers that make no progress
SAMPLE = Path(__file__).resolve().parent / "sample_digits"
MIRROR = "https://storage.googleapis.com/cvdf-datasets/mnist"
FILES = {  # the MNIST database: file -> SHA-256 of its uncompressed content
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
tf: Any  # tensorflow.compat.v1, imported when arguments and data are known to be good


class InputError(Exception):
    """Arguments, TF_CONFIG or files that cannot be used: the message says why, the exit status is 2."""


# --- this process's place in the cluster --------------------------------------------------------


class Task(NamedTuple):
    """One process of a cluster."""

    ps: Sequence[str]  # addresses such as node1:2222
    workers: Sequence[str]
    role: str
    number: int

    @property
    def is_chief(self) -> bool:
        return self.role == "worker" and self.number == 0


ALONE = Task([], ["this process"], "worker", 0)


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


# --- images and labels --------------------------------------------------------------------------


def choose_digits(folder: Path | None, mirror: str | None) -> list[Any]:
    """The user's MNIST, fetched first where wanted, else the sample beside this script."""
    place = folder or Path("MNIST_data")
    if mirror:
        download(place, mirror)
    if folder or place.exists():
        return load_digits(place)
    digits = load_digits(SAMPLE)
    count = len(digits[1]) + len(digits[3])
    print(f"No folder {place}: using the SAMPLE of {count} digits, not the full MNIST", flush=True)
    return digits


def load_digits(folder: Path) -> list[Any]:
    """Training images, their labels, test images and theirs, from the four IDX files or from mnist.npz.

    Images are rows of 784 grey pixels from 0 to 255, labels are numbers from 0 to 9.
    """
    npz = folder / "mnist.npz"  # as Keras distributes it
    if npz.exists():
        with reading(npz), np.load(npz) as file:
            arrays = [file[name].astype(np.uint8) for name in ("x_train", "y_train", "x_test", "y_test")]
    else:
        arrays = [read_idx(find_idx(folder, name)) for name in FILES]
    for use, images, labels in zip(("training", "test"), arrays[::2], arrays[1::2]):
        if not len(images) or images.shape != (*labels.shape, 28, 28) or labels.max() >= CLASSES:
            found = f"images {images.shape} and labels {labels.shape} up to {labels.max(initial=0)}"
            raise InputError(f"{folder}: {use} data: {found} instead of (n, 28, 28) and (n,) up to 9")
    return [array.reshape(-1, PIXELS) if array.ndim == 3 else array for array in arrays]


def find_idx(folder: Path, name: str) -> Path:
    """The gzipped file if there is one, else the plain one."""
    gzipped = folder / f"{name}.gz"
    return gzipped if gzipped.exists() else folder / name


def read_idx(path: Path) -> Any:
    """The array in an IDX file: bytes 0, 0, 8 (its values are bytes) and the number of dimensions, the size
    of each as 32 bits, big-endian, then the values. The format is described with the MNIST database.
    """
    with reading(path):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        magic = bytes([0, 0, 8, 3 if "idx3" in path.name else 1])
        if content[:4] != magic:
            raise ValueError(f"starts with 0x{content[:4].hex()}, not with 0x{magic.hex()}")
        start = 4 + 4 * magic[3]
        shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4)]
        if len(content) != start + math.prod(shape):
            raise ValueError(f"{len(content)} bytes, not {start + math.prod(shape)} as for the shape {shape}")
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def download(folder: Path, mirror: str) -> None:
    """Fetch those of the four files that the folder lacks; each appears checked and whole or not at all.

    Several workers may do so at a time.
    """
    for name, checksum in FILES.items():
        if not find_idx(folder, name).exists():
            url, whole = f"{mirror}/{name}.gz", folder / f"{name}.{os.urandom(8).hex()}"
            print(f"Downloading {url}", flush=True)
            with reading(f"{url} (without a network, copy the files into {folder} yourself)"):
                content = urllib.request.urlopen(url, timeout=60).read()
                if hashlib.sha256(gzip.decompress(content)).hexdigest() != checksum:
                    raise ValueError("not the file of the MNIST database, its SHA-256 differs")
                folder.mkdir(parents=True, exist_ok=True)
                whole.write_bytes(content)
                whole.rename(folder / f"{name}.gz")


@contextlib.contextmanager
def reading(source: object) -> Iterator[None]:
    """Whatever goes wrong inside with what was read becomes an InputError that names the source."""
    try:
        yield
    except (OSError, ValueError, KeyError, EOFError, zlib.error, BadZipFile, HTTPException) as error:
        raise InputError(f"{source}: {error}") from None


def take_share(images: Any, labels: Any, worker: int, workers: int) -> tuple[Any, Any]:
    """The images and labels of one worker. All shares have one size and no image in common.

    They are drawn at random, because MNIST's order is not: its odd images are easier than its even ones.
    """
    size = len(labels) // workers
    if not size:
        raise InputError(f"{workers} workers are too many for {len(labels)} images")
    mine = np.random.default_rng(0).permutation(len(labels))[worker * size : (worker + 1) * size]
    return images[mine], labels[mine]


def batches(images: Any, labels: Any, size: int, worker: int, step: int) -> Iterator[tuple[Any, Any]]:
    """Endless batches of images and labels, from a step on. Each epoch has an order of its own, the same
    again after a restart; images that are left over at its end have their turn in another epoch.
    """
    first_epoch, first_batch = divmod(step, len(labels) // size)
    for epoch in itertools.count(first_epoch):
        order = np.random.default_rng([epoch, worker]).permutation(len(labels))
        for batch in range(first_batch, len(labels) // size):
            chosen = order[batch * size : (batch + 1) * size]
            yield images[chosen], labels[chosen]
        first_batch = 0


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


def accuracy(scores: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, 1, output_type=tf.int32), labels), tf.float32))


class Replica:
    """A worker's graph for asynchronous training: its variables on the ps, all else here.

    The vector of parameters is cut into parts, one on each ps. `seen` counts, for each worker, the images
    that it has trained on. Worker and ps exchange parameters and changes in every step, or after
    --local-steps; one call of session.run() can make several exchanges, one after the other.
    """

    def __init__(self, task: Task, options: argparse.Namespace, batch: int, mean_image: Any) -> None:
        self.task, self.workers, self.mean_image = task, len(task.workers), mean_image
        self.rate = options.learning_rate or 4 / (2 if options.sync else max(2, self.workers))
        steps, self.images_per_exchange = options.local_steps, options.local_steps * batch
        place = tf.train.replica_device_setter(len(task.ps), worker_device=f"/job:worker/task:{task.number}")
        with tf.device(place):
            self.images = tf.placeholder(tf.uint8, [None, None, PIXELS], "images")  # [step, batch, pixel]
            self.labels = tf.placeholder(tf.int32, [None, None], "labels")  # [step, batch]
            with tf.name_scope("first"):
                self.first = new_parameters(options.init_stddev), tf.zeros([self.workers], tf.int64)
            cut = tf.fixed_size_partitioner(max(1, len(task.ps)))
            self.parts = list(tf.get_variable("parameters", initializer=self.first[0], partitioner=cut))
            self.seen = tf.get_variable("seen", initializer=self.first[1])
            self.initialise = tf.global_variables_initializer()
            self.uninitialised = tf.report_uninitialized_variables()
            self.saver = tf.train.Saver()
            with tf.name_scope("test"):
                self.accuracy = accuracy(model(tf.concat(self.parts, 0), self.pixels(0)), self.labels[0])
            self.before: list[Any] = []  # what has to be done before the next exchange
            self.prepare()
            self.exchanges = []  # running the n-th runs those before it, too
            for number in range(max(1, STEPS_PER_CALL // steps)):
                with tf.name_scope(f"exchange_{number}"):
                    self.exchanges.append(self.exchange(range(number * steps, (number + 1) * steps)))

    def pixels(self, step: int) -> Any:
        return (tf.cast(self.images[step], tf.float32) - self.mean_image) / 255

    def exchange(self, steps: Iterable[int]) -> tuple[Any, Any, Any]:
        """Read the parameters, train for some steps, send the change. Gives `seen`, cost and accuracy."""
        parameters, changes = self.read(), []
        for step in steps:
            scores, labels = model(parameters, self.pixels(step)), self.labels[step]
            costs = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
            cost = tf.reduce_mean(costs)
            changes += tf.gradients(self.rate * cost, parameters)
            parameters -= changes[-1]
        change = tf.split(tf.add_n(changes), [part.shape[0] for part in self.parts])
        return self.send(change), cost, accuracy(scores, labels)

    def prepare(self) -> None:
        """What else the exchanges need on the ps."""

    def read(self) -> Any:
        with tf.control_dependencies(self.before):
            return tf.concat([part.read_value() for part in self.parts], 0)

    def send(self, change: list[Any]) -> Any:
        applied = self.subtract(change)
        with tf.device(self.seen.device), tf.control_dependencies(applied):
            mine = tf.one_hot(self.task.number, self.workers, self.images_per_exchange, dtype=tf.int64)
            self.before = [self.seen.assign_add(mine)]
        return self.before[0]

    def subtract(self, change: list[Any]) -> list[Any]:
        return [part.assign_sub(piece, read_value=False) for part, piece in zip(self.parts, change)]

    def wake(self, workers: Iterable[int]) -> list[Any]:
        """What to run before these workers start, or start again."""
        return []


class SyncReplica(Replica):
    """A worker's graph for synchronous training, in rounds.

    The changes of all workers meet in accumulators on the ps; when all are there, the chief applies their
    mean. Every worker has a gate on the ps, a queue in which it finds the number of the round that it may
    begin, so that no worker can take another's place in a round. A change that comes late for its round,
    after a restart, is dropped by the accumulator.
    """

    def prepare(self) -> None:
        self.means = []
        for i, part in enumerate(self.parts):
            with tf.device(part.device):
                self.means.append(tf.ConditionalAccumulator(tf.float32, part.shape, shared_name=f"mean_{i}"))
        with tf.device(self.seen.device):
            names = [f"gate_{worker}" for worker in range(self.workers)]
            self.gates = [tf.FIFOQueue(4, [tf.int64], [[]], shared_name=name) for name in names]

    def read(self) -> Any:
        with tf.device(self.seen.device), tf.control_dependencies(self.before):
            self.round = self.gates[self.task.number].dequeue()
        self.before = [self.round]
        return super().read()

    def send(self, change: list[Any]) -> Any:
        self.before = [mean.apply_grad(piece, self.round) for mean, piece in zip(self.means, change)]
        with tf.device(self.seen.device):
            seen = tf.fill([self.workers], (self.round + 1) * self.images_per_exchange)
            if self.task.is_chief:
                self.finish_round(seen)
            with tf.control_dependencies(self.before):
                return tf.identity(seen)

    def finish_round(self, seen: Any) -> None:
        with tf.control_dependencies(self.before):
            applied = self.subtract([mean.take_grad(self.workers) for mean in self.means])
        with tf.control_dependencies(applied):
            counted = self.seen.assign(seen)
        with tf.control_dependencies([counted]):
            self.before = [gate.enqueue(self.round + 1) for gate in self.gates]

    def wake(self, workers: Iterable[int]) -> list[Any]:
        with tf.device(self.seen.device):
            now = tf.reduce_max(self.seen) // self.images_per_exchange
            begun = [mean.set_global_step(now) for mean in self.means] if self.task.is_chief else []
            for gate in (self.gates[worker] for worker in workers):
                with tf.control_dependencies([gate.dequeue_many(gate.size())]):
                    begun.append(gate.enqueue(now))
        return begun


# --- training -----------------------------------------------------------------------------------


class Training:
    """One worker's training. The chief also initialises, restores and saves it."""

    session: Any = None
    cost = math.nan
    seconds = 0.0

    def __init__(self, task: Task, options: argparse.Namespace, share: Any, mean_image: Any) -> None:
        self.task, self.options, (self.images, self.labels) = task, options, share
        self.batch = min(options.batch_size, len(self.labels))
        self.per_epoch = len(self.labels) // self.batch  # batches
        self.quota = options.epochs * self.per_epoch * self.batch  # images
        self.target = start_server(task).target if task.ps else ""
        self.replica = (SyncReplica if options.sync else Replica)(task, options, self.batch, mean_image)
        self.saved, self.saving = time.monotonic(), threading.Lock()
        self.writer = None
        if options.log_dir:
            graph = tf.get_default_graph() if task.is_chief else None
            self.writer = tf.summary.FileWriter(str(options.log_dir / f"worker-{task.number}"), graph)
        if task.is_chief:
            self.stop_at_sigterm()

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
        config.device_filters[:] = ["/job:ps", f"/job:worker/task:{self.task.number}"]  # ignore other workers
        config.graph_options.rewrite_options.disable_meta_optimizer = True  # takes memory, finds nothing
        config.gpu_options.allow_growth = True
        session, replica = tf.Session(self.target, config=config), self.replica
        wake = range(replica.workers) if self.task.is_chief else [self.task.number]
        while session.run(replica.uninitialised).size:
            if self.task.is_chief:
                session.run(replica.initialise, self.last_checkpoint())
                wake = [self.task.number]
            else:
                time.sleep(0.2)
        session.run(replica.wake(wake))
        return session

    def last_checkpoint(self) -> dict[Any, Any]:
        """Initial values to feed instead of the usual ones, if there is a checkpoint."""
        path = self.options.checkpoint_dir and tf.train.latest_checkpoint(str(self.options.checkpoint_dir))
        if not path:
            return {}
        parameters, seen = (tf.train.load_variable(path, name) for name in ("parameters", "seen"))
        if len(seen) != self.replica.workers:  # then all have done the same part of it
            seen = np.full(self.replica.workers, seen.sum() // self.replica.workers)
        print(f"Resuming from {path}", flush=True)
        return dict(zip(self.replica.first, (parameters, seen)))

    def save(self) -> None:
        """Into --checkpoint-dir, if there is one and the training has begun."""
        if self.options.checkpoint_dir and self.session:
            with self.saving:
                step, path = self.seen().sum() // self.batch, self.options.checkpoint_dir / "model.ckpt"
                self.replica.saver.save(self.session, str(path), step, write_meta_graph=False)
            self.saved = time.monotonic()

    def stop_at_sigterm(self) -> None:
        """Save and end at SIGTERM; in a thread, as the main thread hears nothing while in session.run()."""

        def stop() -> None:
            os.read(heard, 1)
            try:
                self.save()
                print("Stopped by SIGTERM", flush=True)
            finally:
                os._exit(128 + signal.SIGTERM)

        heard, told = os.pipe()
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told)
        signal.signal(signal.SIGTERM, lambda *_: None)
        threading.Thread(target=stop, daemon=True).start()

    def seen(self) -> Any:
        """Images that each worker has trained on."""
        return self.session.run(self.replica.seen)

    def train(self) -> None:
        """Train until every image of the share had its turn in every epoch."""
        replica, mine = self.replica, self.task.number
        every = self.options.report_every * self.batch
        seen = int(self.seen()[mine])
        self.began = self.reported = time.monotonic(), seen
        stream = batches(self.images, self.labels, self.batch, mine, seen // self.batch)
        while seen < self.quota:
            left = math.ceil((self.quota - seen) / replica.images_per_exchange)
            exchanges = min(left, len(replica.exchanges))
            steps = exchanges * self.options.local_steps
            feed = dict(zip((replica.images, replica.labels), zip(*itertools.islice(stream, steps))))
            all_seen, self.cost, right = self.session.run(replica.exchanges[exchanges - 1], feed)
            before, seen = seen, int(all_seen[mine])
            if before // every < seen // every or seen >= self.quota:
                self.report(seen, int(all_seen.sum()) // self.batch, right)
            if self.task.is_chief and time.monotonic() - self.saved > self.options.checkpoint_every:
                self.save()
        self.seconds = time.monotonic() - self.began[0]

    def report(self, seen: int, step: int, right: float) -> None:
        """A line on what is behind and what is ahead, and a point in each of TensorBoard's curves."""
        now, live = time.monotonic(), sys.stdout.isatty()
        speed = (seen - self.reported[1]) / (now - self.reported[0])  # images per second
        left = (self.quota - seen) * (now - self.began[0]) / (seen - self.began[1])
        epoch, batch = divmod(seen // self.batch - 1, self.per_epoch)
        line = (
            f"Worker: {self.task.number},  Step: {step},  Epoch: {epoch + 1:2d},  "
            f"Batch: {batch + 1:3d} of {self.per_epoch:3d},  Cost: {self.cost:.4f},  "
            f"AvgTime: {1000 * self.batch / speed:.2f}ms,  Left: {left:.0f}s"
        )
        line = f"\r{line}\033[K" if live else line
        print(line if live and seen < self.quota else f"{line}\n", end="", flush=True)
        if self.writer:
            points = {"cost": self.cost, "accuracy": right, "images_per_second": speed}
            values = [tf.Summary.Value(tag=tag, simple_value=value) for tag, value in points.items()]
            self.writer.add_summary(tf.Summary(value=values), step)
            self.writer.flush()
        self.reported = now, seen

    def wait_for_others(self) -> None:
        """The training ends when all workers are done, or when those that are not make no progress."""
        last, since = self.seen(), time.monotonic()
        while (seen := self.seen()).min() < self.quota:
            if (seen != last).any():
                last, since = seen, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                late = np.flatnonzero(seen < self.quota).tolist()
                print(f"Not waiting any longer for workers that make no progress: {late}", flush=True)
                break
            time.sleep(0.1)

    def evaluate(self, images: Any, labels: Any) -> float:
        """The part of the test images that the model recognises; in pieces, which takes less memory."""
        right = 0.0
        for start in range(0, len(labels), 1000):
            piece = slice(start, start + 1000)
            feed = {self.replica.images: images[None, piece], self.replica.labels: labels[None, piece]}
            right += self.session.run(self.replica.accuracy, feed) * len(labels[piece])
        return right / len(labels)


# --- command line -------------------------------------------------------------------------------


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    def positive(kind: type, text: str) -> Any:
        if not 0 < kind(text) < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not a positive number")
        return kind(text)

    count, number = functools.partial(positive, int), functools.partial(positive, float)
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
    add("--data-dir", type=Path, metavar="DIR", help="IDX files or mnist.npz (MNIST_data, else a sample)")
    add("--download", nargs="?", const=MIRROR, metavar="URL", help=f"fetch missing files ({MIRROR})")
    job_dir = os.environ.get("TF_SUBMIT_JOB_DIR")
    for flag, name in (("--checkpoint-dir", "checkpoints"), ("--log-dir", "tensorboard")):
        default = Path(job_dir, name) if job_dir else None
        add(flag, type=Path, default=default, metavar="DIR", help=f"({name} in the job's folder, or none)")
    add("--checkpoint-every", type=number, default=30, metavar="SECONDS", help="(30)")
    add("--report-every", type=count, default=100, metavar="N", help="steps per line and per point (100)")
    return parser.parse_args(arguments)


def import_tensorflow() -> None:
    global tf
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.modules.setdefault("keras", None)  # type: ignore[arg-type]  # else imported as well, for nothing
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()


def start_server(task: Task) -> Any:
    cluster = {"ps": task.ps, "worker": task.workers}
    try:
        return tf.train.Server(cluster, job_name=task.role, task_index=task.number)
    except (tf.errors.OpError, ValueError) as error:
        raise InputError(f"{task.role} {task.number} of {cluster} cannot serve: {error}") from None


def serve(task: Task) -> None:
    """A ps only answers the workers."""
    import_tensorflow()
    server = start_server(task)
    print(f"ps {task.number} serves at {task.ps[task.number]} until it is stopped", flush=True)
    server.join()


def work(task: Task, options: argparse.Namespace) -> None:
    if task.is_chief and options.checkpoint_dir:
        with reading(options.checkpoint_dir):
            options.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    images, labels, *test = choose_digits(options.data_dir, options.download)
    mean_image = images.mean(axis=0, dtype=np.float32)
    share = take_share(images, labels, task.number, len(task.workers))
    del images, labels
    import_tensorflow()
    training = Training(task, options, share, mean_image)
    right = training.run(*test)
    print(f"Test-Accuracy: {right:.4f}\nTotal Time: {training.seconds:.2f}s", flush=True)
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
