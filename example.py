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
import functools
import gzip
import hashlib
import http.client
import json
import math
import os
import re
import signal
import sys
import tempfile
import threading
import time
import urllib.request
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PIXELS, HIDDEN, CLASSES = 28 * 28, 100, 10  # the model: 784-100-10, sigmoid, softmax
STEPS_PER_CALL = 10  # calling session.run() costs about as much as a training step: make each call run several
PATIENCE = 60.0  # seconds that the chief waits at the end for workers that make no progress
SAMPLE = Path(__file__).resolve().parent / "sample_digits"
MIRROR = "https://storage.googleapis.com/cvdf-datasets/mnist"
FILES = {  # the MNIST database: file -> SHA-256 of its uncompressed content
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
DAMAGED = (OSError, ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile, http.client.HTTPException)
tf: Any  # tensorflow.compat.v1, imported by main() once arguments and data are known to be good


class InputError(Exception):
    """Arguments, TF_CONFIG or files that cannot be used: the message says why, the exit status is 2."""


# --- this process's place in the cluster --------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One process of the cluster {"ps": ["host:port", ...], "worker": [...]}."""

    cluster: Mapping[str, Sequence[str]]
    role: str
    index: int

    @property
    def workers(self) -> int:
        return len(self.cluster["worker"])

    @property
    def is_chief(self) -> bool:
        return self.role == "worker" and self.index == 0

    def check(self) -> None:
        if self.role not in ("ps", "worker"):
            raise InputError(f"no work for a task of type {self.role!r}: the roles are ps and worker")
        if not self.cluster["ps"]:
            raise InputError("the cluster has no ps, and the parameters have to be somewhere")
        for address in (*self.cluster["ps"], *self.cluster["worker"]):
            if not re.fullmatch(r".+:\d+", address):
                raise InputError(f"{address!r} is not an address such as node1:2222")
        if not 0 <= self.index < len(self.cluster[self.role]):
            raise InputError(f"there is no {self.role} {self.index} among {self.cluster[self.role]}")


ALONE = Task({"ps": [], "worker": ["this process"]}, "worker", 0)


def find_task(options: argparse.Namespace, tf_config: str) -> Task:
    """The task that the command line names, else that of TF_CONFIG, else a process on its own."""
    given = {"-s": options.ps, "-w": options.worker, "--job_name": options.job_name}
    missing = ", ".join(flag for flag, value in given.items() if not value)
    if not any(given.values()):
        task = read_tf_config(tf_config)
    elif missing:
        raise InputError(f"{missing} missing: a task needs {', '.join(given)} and --task_index")
    else:
        cluster = {"ps": options.ps.split(","), "worker": options.worker.split(",")}
        task = Task(cluster, options.job_name, options.task_index)
    if task != ALONE:
        task.check()
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
        chief, role, index = cluster.get("chief", []), config["task"]["type"], int(config["task"]["index"])
        if role == "worker":
            index += len(chief)
        workers = chief + cluster.get("worker", [])
        return Task({"ps": cluster.get("ps", []), "worker": workers}, role.replace("chief", "worker"), index)
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
    print(f"No folder {place}: training on the SAMPLE of {count} digits, not on the full MNIST", flush=True)
    return digits


def load_digits(folder: Path) -> list[Any]:
    """Training images, their labels, test images, their labels, from four IDX files or mnist.npz.

    Images are rows of 784 grey pixels from 0 to 255, labels are numbers from 0 to 9.
    """
    npz = folder / "mnist.npz"
    arrays = read_npz(npz) if npz.exists() else [read_idx(find_idx(folder, name), name) for name in FILES]
    for use, images, labels in zip(("training", "test"), arrays[::2], arrays[1::2]):
        if not len(images) or images.shape != (len(labels), 28, 28) or labels.max() >= CLASSES:
            raise InputError(
                f"{folder}: {use} images of shape {images.shape} with {len(labels)} labels up to "
                f"{labels.max(initial=0)} instead of as many images of 28 x 28 pixels as labels up to 9"
            )
    return [array.reshape(-1, PIXELS) if array.ndim == 3 else array for array in arrays]


def find_idx(folder: Path, name: str) -> Path:
    """The file, plain or gzipped; the plain name if there is neither."""
    gzipped = folder / f"{name}.gz"
    return gzipped if gzipped.exists() else folder / name


def read_idx(path: Path, name: str) -> Any:
    try:
        content = path.read_bytes()
        return parse_idx(gzip.decompress(content) if path.suffix == ".gz" else content, 3 if "idx3" in name else 1)
    except DAMAGED as error:
        raise InputError(f"{path}: {error}") from None


def parse_idx(content: bytes, dimensions: int) -> Any:
    """The array in an IDX file: 0, 0, 8 for bytes, the number of dimensions, the size of each (32 bits,
    big-endian), then the values; the format is described with the MNIST database. Raises ValueError.
    """
    magic, head = bytes([0, 0, 8, dimensions]), 4 + 4 * dimensions
    if content[:4] != magic:
        raise ValueError(f"starts with 0x{content[:4].hex()}, not with 0x{magic.hex()}")
    shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, head, 4)]
    if len(content) != head + math.prod(shape):
        raise ValueError(f"{len(content)} bytes long, not {head + math.prod(shape)} as for shape {shape}")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def read_npz(path: Path) -> list[Any]:
    """The arrays of the mnist.npz that comes from Keras."""
    try:
        with np.load(path) as arrays:
            return [arrays[name].astype(np.uint8) for name in ("x_train", "y_train", "x_test", "y_test")]
    except DAMAGED as error:
        raise InputError(f"{path}: {error}") from None


def download(folder: Path, mirror: str) -> None:
    """Fetch those of the four files that the folder lacks; each appears checked and whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, checksum in FILES.items():
        if find_idx(folder, name).exists():
            continue
        url = f"{mirror}/{name}.gz"
        print(f"Downloading {url}", flush=True)
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                content = answer.read()
            found = hashlib.sha256(gzip.decompress(content)).hexdigest()
        except DAMAGED as error:
            raise InputError(f"{url}: {error}; without a network, copy the file into {folder}") from None
        if found != checksum:
            raise InputError(f"{url}: SHA-256 {found}, not {checksum} as the MNIST database")
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:  # another worker may do the same
            file.write(content)
        os.chmod(file.name, 0o644)
        os.replace(file.name, folder / f"{name}.gz")


@dataclass(frozen=True)
class Share:
    """The training images of one worker, and the order in which it takes them."""

    images: Any
    labels: Any
    worker: int
    batch: int

    @property
    def per_epoch(self) -> int:
        """Batches in an epoch; the images that do not fill one have their turn in another epoch."""
        return len(self.labels) // self.batch

    def batches(self, seen: int, count: int) -> tuple[Any, Any]:
        """The next batches after `seen` images: images [count, batch, 784] and labels [count, batch].

        Each epoch has an order of its own, the same again after a restart.
        """
        chosen = []
        for step in range(seen // self.batch, seen // self.batch + count):
            epoch, position = divmod(step, self.per_epoch)
            order = shuffled(len(self.labels), epoch, self.worker)
            chosen.append(order[position * self.batch : (position + 1) * self.batch])
        return self.images[chosen], self.labels[chosen]


def take_share(images: Any, labels: Any, task: Task, batch: int) -> Share:
    """Every n-th image for each of n workers, as many for one as for the other."""
    size = len(labels) // task.workers
    if not size:
        raise InputError(f"{task.workers} workers are too many for {len(labels)} images")
    mine = slice(task.index, size * task.workers, task.workers)
    return Share(np.ascontiguousarray(images[mine]), labels[mine], task.index, min(batch, size))


@functools.lru_cache(maxsize=2)
def shuffled(size: int, epoch: int, worker: int) -> Any:
    return np.random.default_rng([epoch, worker]).permutation(size)


# --- the graph ----------------------------------------------------------------------------------


def new_parameters(stddev: float | None) -> Any:
    """All weights (normally distributed) and biases (zero) of the model, in one vector.

    One vector because every variable would cost a message from the ps and one to it in each step.
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


class Exchange:
    """Asynchronous exchange with the ps: a worker's changes count at once, nobody waits.

    The vector of parameters is cut into `parts`, one on each ps. `seen` counts for each worker the images
    that it has trained on; an exchange adds `images`.
    """

    def __init__(self, task: Task, parts: list[Any], seen: Any, images: int) -> None:
        self.task, self.parts, self.seen, self.images = task, parts, seen, images
        self.before: list[Any] = []  # what must be done before the next exchange begins

    def read(self) -> Any:
        """The parameters as they are when it is this exchange's turn."""
        with tf.control_dependencies(self.before):
            return tf.concat([part.read_value() for part in self.parts], 0)

    def send(self, change: Any) -> Any:
        """Subtract the change from the parameters. Gives `seen` as it is then."""
        self.before = self.subtract(self.cut(change))
        with tf.device(self.seen.device), tf.control_dependencies(self.before):
            mine = tf.one_hot(self.task.index, self.task.workers, self.images, dtype=tf.int64)
            seen = self.seen.assign_add(mine)
        self.before = [seen]
        return seen

    def cut(self, vector: Any) -> Any:
        return tf.split(vector, [part.shape[0] for part in self.parts])

    def subtract(self, changes: Any) -> list[Any]:
        return [part.assign_sub(change, read_value=False) for part, change in zip(self.parts, changes)]

    def wake(self, workers: Sequence[int]) -> list[Any]:
        """What to run so that these workers can start, or start again."""
        return []


class SyncExchange(Exchange):
    """Synchronous exchange in rounds: the chief applies the mean of all workers' changes, then all go on.

    The changes meet in accumulators on the ps. Every worker has a gate there: a queue in which it finds
    the number of the round that it may begin, so that no worker can take another's place in a round. A
    change that comes late for its round, after a restart, is dropped by the accumulator.
    """

    def __init__(self, task: Task, parts: list[Any], seen: Any, images: int) -> None:
        super().__init__(task, parts, seen, images)
        self.means, self.gates = [], []
        for number, part in enumerate(parts):
            with tf.device(part.device):
                self.means.append(tf.ConditionalAccumulator(tf.float32, part.shape, shared_name=f"mean_{number}"))
        for worker in range(task.workers):
            with tf.device(seen.device):
                self.gates.append(tf.FIFOQueue(4, [tf.int64], [[]], shared_name=f"gate_{worker}"))

    def read(self) -> Any:
        with tf.device(self.seen.device), tf.control_dependencies(self.before):
            self.round = self.gates[self.task.index].dequeue()
        self.before = [self.round]
        return super().read()

    def send(self, change: Any) -> Any:
        self.before = [mean.apply_grad(part, self.round) for mean, part in zip(self.means, self.cut(change))]
        if self.task.is_chief:
            self.before = self.finish_round()
        with tf.control_dependencies(self.before):
            return tf.fill([self.task.workers], (self.round + 1) * self.images)

    def finish_round(self) -> list[Any]:
        with tf.control_dependencies(self.before):
            applied = self.subtract([mean.take_grad(self.task.workers) for mean in self.means])
        with tf.device(self.seen.device), tf.control_dependencies(applied):
            counted = self.seen.assign(tf.fill([self.task.workers], (self.round + 1) * self.images))
            with tf.control_dependencies([counted]):
                return [gate.enqueue(self.round + 1) for gate in self.gates]

    def wake(self, workers: Sequence[int]) -> list[Any]:
        with tf.device(self.seen.device):
            now = tf.reduce_max(self.seen) // self.images
            begun = [mean.set_global_step(now) for mean in self.means] if self.task.is_chief else []
            for gate in (self.gates[worker] for worker in workers):
                with tf.control_dependencies([gate.dequeue_many(gate.size())]):
                    begun.append(gate.enqueue(now))
        return begun


class Replica:
    """A worker's graph: variables on the ps, where replica_device_setter puts them, all else here."""

    def __init__(self, task: Task, options: argparse.Namespace, batch: int, mean_image: Any) -> None:
        self.task, ps, steps = task, len(task.cluster["ps"]), options.local_steps
        with tf.device(tf.train.replica_device_setter(ps, worker_device=f"/job:worker/task:{task.index}")):
            self.images = tf.placeholder(tf.uint8, [None, None, PIXELS], "images")  # [step, batch, pixel]
            self.labels = tf.placeholder(tf.int32, [None, None], "labels")  # [step, batch]
            self.mean_image = tf.constant(mean_image)
            self.first = new_parameters(options.init_stddev), tf.zeros([task.workers], tf.int64)
            cut = tf.fixed_size_partitioner(max(1, ps))
            parts = list(tf.get_variable("parameters", initializer=self.first[0], partitioner=cut))
            self.seen = tf.get_variable("seen", initializer=self.first[1])
            self.exchange = (SyncExchange if options.sync else Exchange)(task, parts, self.seen, batch * steps)
            self.rounds = []  # the n-th runs n + 1 exchanges
            for number in range(max(1, STEPS_PER_CALL // steps)):
                with tf.name_scope(f"exchange_{number}"):
                    self.rounds.append(self.train(number * steps, steps, options.learning_rate))
            self.hits = correct(model(tf.concat(parts, 0), self.pixels(0)), self.labels[0])
            self.wake_me, self.wake_all = self.exchange.wake([task.index]), self.exchange.wake(range(task.workers))
            self.initializer = tf.global_variables_initializer()
            self.uninitialised = tf.report_uninitialized_variables()
            self.saver = tf.train.Saver()

    def pixels(self, step: int) -> Any:
        return (tf.cast(self.images[step], tf.float32) - self.mean_image) * (1 / 255)

    def train(self, first: int, steps: int, learning_rate: float) -> tuple[Any, Any, Any]:
        """Read the parameters, train with some batches, send the change. Gives images seen, cost, accuracy."""
        parameters, changes = self.exchange.read(), []
        for step in range(first, first + steps):
            scores, labels = model(parameters, self.pixels(step)), self.labels[step]
            cost = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores))
            changes.append(learning_rate * tf.gradients(cost, parameters)[0])
            parameters -= changes[-1]
        return self.exchange.send(tf.add_n(changes)), cost, correct(scores, labels)


def correct(scores: Any, labels: Any) -> Any:
    """The part of the labels to which the scores agree."""
    return tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, 1, output_type=tf.int32), labels), tf.float32))


# --- a worker's life ----------------------------------------------------------------------------


def open_session(replica: Replica, target: str, checkpoint_dir: Path | None) -> Any:
    """A session with all variables ready: the chief initialises them if need be, the others wait.

    A restarted chief that finds the ps alive goes on from there: every checkpoint is older.
    """
    filters = ["/job:ps", f"/job:worker/task:{replica.task.index}"]  # else workers wait for each other's end
    session = tf.Session(target, config=tf.ConfigProto(device_filters=filters, allow_soft_placement=True))
    wake = replica.wake_all if replica.task.is_chief else replica.wake_me
    while session.run(replica.uninitialised).size:
        if replica.task.is_chief:
            session.run(replica.initializer, restored(replica, checkpoint_dir))
            wake = replica.wake_me
        else:
            time.sleep(0.2)
    session.run(wake)
    return session


def restored(replica: Replica, checkpoint_dir: Path | None) -> dict[Any, Any]:
    """What to feed to the initializer: the values of the latest checkpoint, if there is one."""
    path = checkpoint_dir and tf.train.latest_checkpoint(str(checkpoint_dir))
    if not path:
        return {}
    parameters, seen = (tf.train.load_variable(path, name) for name in ("parameters", "seen"))
    if len(seen) != replica.task.workers:  # then all have done an equal part
        seen = np.full(replica.task.workers, seen.sum() // replica.task.workers)
    print(f"Resuming from {path}", flush=True)
    return dict(zip(replica.first, (parameters, seen)))


class Checkpoints:
    """The chief's: saves the training every so many seconds, at its end, and at SIGTERM."""

    def __init__(self, folder: Path | None, every: float) -> None:
        self.folder, self.every, self.saved = folder, every, time.monotonic()
        self.lock = threading.Lock()
        self.training: tuple[Any, Replica, int] | None = None  # session, graph, batch size

    def save(self) -> None:
        if self.folder and self.training:
            session, replica, batch = self.training
            with self.lock:
                step = session.run(replica.seen).sum() // batch
                replica.saver.save(session, str(self.folder / "model.ckpt"), step, write_meta_graph=False)
            self.saved = time.monotonic()

    def save_if_due(self) -> None:
        if time.monotonic() - self.saved >= self.every:
            self.save()

    def wait_for_sigterm(self) -> None:
        """In a thread of its own: in session.run() the main thread would not notice the signal."""
        signal.sigwait([signal.SIGTERM])
        try:
            self.save()
            print("Ended by SIGTERM; what was trained is saved", flush=True)
        finally:
            os._exit(128 + signal.SIGTERM)


class Progress:
    """Tells how the training goes: on the terminal or in lines, and for TensorBoard."""

    def __init__(self, task: Task, share: Share, quota: int, log_dir: Path | None) -> None:
        self.task, self.share, self.quota = task, share, quota
        self.writer = tf.summary.FileWriter(str(log_dir / f"worker-{task.index}"), None) if log_dir else None
        if self.writer and task.is_chief:
            self.writer.add_graph(tf.get_default_graph())
        self.live = sys.stdout.isatty()

    def begin(self, seen: int) -> None:
        self.began = self.last = time.monotonic(), seen

    def report(self, seen: int, all_seen: int, cost: float, accuracy: float) -> None:
        now, batch = time.monotonic(), self.share.batch
        seconds, images = now - self.last[0], seen - self.last[1]
        epoch, position = divmod(seen // batch - 1, self.share.per_epoch)
        left = (self.quota - seen) * (now - self.began[0]) / (seen - self.began[1])
        line = (
            f"Worker: {self.task.index},  Step: {all_seen // batch},  Epoch: {epoch + 1:2d},  "
            f"Batch: {position + 1:3d} of {self.share.per_epoch:3d},  Cost: {cost:.4f},  "
            f"AvgTime: {1000 * seconds * batch / images:.2f}ms,  Left: {int(left // 60)}:{int(left % 60):02d}"
        )
        print(f"\r{line}\033[K" if self.live else line, end="" if self.live else "\n", flush=True)
        self.record(all_seen // batch, cost=cost, accuracy=accuracy, images_per_second=images / seconds)
        self.last = now, seen

    def record(self, step: int, **values: float) -> None:
        if self.writer:
            summary = tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=v) for tag, v in values.items()])
            self.writer.add_summary(summary, step)
            self.writer.flush()


def train(session: Any, replica: Replica, share: Share, quota: int, every: int, progress: Progress, checkpoints: Checkpoints) -> float:
    seen = int(session.run(replica.seen)[replica.task.index])
    progress.begin(seen)
    cost = float("nan")
    per_exchange = replica.exchange.images
    while seen < quota:
        before, rounds = seen, min(len(replica.rounds), -((seen - quota) // per_exchange))
        images, labels = share.batches(seen, rounds * per_exchange // share.batch)
        feed = {replica.images: images, replica.labels: labels}
        all_seen, cost, accuracy = session.run(replica.rounds[rounds - 1], feed)
        seen = int(all_seen[replica.task.index])
        if seen // share.batch // every > before // share.batch // every or seen >= quota:
            progress.report(seen, all_seen.sum(), cost, accuracy)
        checkpoints.save_if_due()
    return cost


def wait_for_workers(session, replica, quota) -> None:
    """The chief's last work: the end is when all are at the end, or no longer move."""
    before, since = None, time.monotonic()
    while (seen := session.run(replica.seen)).min() < quota:
        if before is None or (seen != before).any():
            before, since = seen, time.monotonic()
        elif time.monotonic() - since > PATIENCE:
            print(f"No longer waiting for workers {np.flatnonzero(seen < quota).tolist()}, which do not move")
            return
        time.sleep(0.2)


def evaluate(session: Any, replica: Replica, images: Any, labels: Any) -> float:
    """Accuracy on the test images, a thousand at a time to spare memory."""
    hits = 0.0
    for start in range(0, len(labels), 1000):
        part = slice(start, start + 1000)
        feed = {replica.images: images[None, part], replica.labels: labels[None, part]}
        hits += session.run(replica.hits, feed) * len(labels[part])
    return hits / len(labels)


# --- command line -------------------------------------------------------------------------------


def positive(kind: type, text: str) -> Any:
    value = kind(text)
    if value <= 0:
        raise ValueError
    return value


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    def default(folder: str) -> str | None:
        job_dir = os.environ.get("TF_SUBMIT_JOB_DIR")
        return os.path.join(job_dir, folder) if job_dir else None

    count, number = functools.partial(positive, int), functools.partial(positive, float)
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    cluster = parser.add_argument_group("cluster (else from TF_CONFIG, else a single process)")
    cluster.add_argument("-s", "--server", "-m", "--master", dest="ps", metavar="HOST:PORT,...", help="the ps")
    cluster.add_argument("-w", "--worker", metavar="HOST:PORT,...", help="the workers")
    cluster.add_argument("--job_name", choices=("ps", "worker"), help="the role of this process")
    cluster.add_argument("--task_index", type=int, default=0, metavar="N", help="its number among those of its role")
    training = parser.add_argument_group("training")
    training.add_argument("--epochs", type=count, default=6)
    training.add_argument("--batch-size", type=count, default=100)
    training.add_argument("--learning-rate", type=number)
    training.add_argument("--init-stddev", type=number)
    training.add_argument("--local-steps", type=count, default=1)
    training.add_argument("--sync", action="store_true")
    files = parser.add_argument_group("files")
    files.add_argument("--data-dir", type=Path)
    files.add_argument("--download", nargs="?", const=MIRROR, metavar="URL")
    files.add_argument("--checkpoint-dir", type=Path, default=default("checkpoints"))
    files.add_argument("--checkpoint-every", type=number, default=30)
    files.add_argument("--log-dir", type=Path, default=default("tensorboard"))
    files.add_argument("--report-every", type=count, default=100)
    return parser.parse_args(arguments)


def import_tensorflow() -> None:
    global tf
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()


def main(arguments: Sequence[str] | None = None) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    options = parse_arguments(arguments)
    try:
        task = find_task(options, os.environ.get("TF_CONFIG", ""))
        return serve(task) if task.role == "ps" else work(task, options)
    except InputError as error:
        print(f"example.py: error: {error}", file=sys.stderr)
        return 2


def start_server(task: Task) -> Any:
    return tf.train.Server(dict(task.cluster), job_name=task.role, task_index=task.index)


def serve(task: Task) -> int:
    import_tensorflow()
    server = start_server(task)
    print(f"ps {task.index} serves the parameters at {task.cluster['ps'][task.index]} until it is stopped", flush=True)
    server.join()
    return 0


def work(task: Task, options: argparse.Namespace) -> int:
    checkpoints = Checkpoints(options.checkpoint_dir, options.checkpoint_every)
    if task.is_chief:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        threading.Thread(target=checkpoints.wait_for_sigterm, daemon=True).start()
    digits = choose_digits(options.data_dir, options.download)
    mean_image = digits[0].mean(axis=0)
    share = take_share(digits[0], digits[1], task, options.batch_size)
    test_images, test_labels = digits[2:]
    del digits
    quota = options.epochs * share.per_epoch * share.batch
    options.learning_rate = options.learning_rate or 4 / max(2, task.workers)
    import_tensorflow()
    target = start_server(task).target if task.cluster["ps"] else ""
    replica = Replica(task, options, share.batch, mean_image.astype(np.float32))
    progress = Progress(task, share, quota, options.log_dir)
    while True:
        try:
            session = open_session(replica, target, options.checkpoint_dir)
            if task.is_chief: checkpoints.training = session, replica, share.batch
            begun = time.monotonic()
            cost = train(session, replica, share, quota, options.report_every, progress, checkpoints)
            seconds = time.monotonic() - begun
            if task.is_chief:
                wait_for_workers(session, replica, quota)
                checkpoints.save()
            accuracy = evaluate(session, replica, test_images, test_labels)
            break
        except (tf.errors.AbortedError, tf.errors.UnavailableError) as error:
            print(f"Lost a parameter server, waiting for it: {error.message}", flush=True)
            session.close()
    print(f"Test-Accuracy: {accuracy:.4f}\nTotal Time: {seconds:.2f}s\nFinal Cost: {cost:.4f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
