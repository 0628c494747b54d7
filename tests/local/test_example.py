"""example.py with real TensorFlow: clusters of processes on this machine, without a scheduler."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import example  # noqa: E402
from sample_digits import mnist  # noqa: E402

SAMPLE = ROOT / "sample_digits"
TIMEOUT = 180  # seconds; several TensorFlow processes on a busy machine take long to start
LONG = ["--epochs", "300", "--report-every", "20", "--checkpoint-every", "0.5"]  # time enough to be killed in

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
tf = pytest.importorskip("tensorflow").compat.v1


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class Cluster:
    """The processes of one training; the output of each is in a file of its own."""

    def __init__(self, folder: Path, ps: int = 1, workers: int = 2) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.statuses: list[int] = []
        addresses = [f"localhost:{port}" for port in free_ports(ps + workers)]
        self.ps, self.workers = addresses[:ps], addresses[ps:]

    def start(self, role: str, number: int, *arguments: str, **environment: str) -> None:
        """Start a task, or start it again, as `example.py -s ... -w ... --job_name ... --task_index ...`."""
        cluster = ["-s", ",".join(self.ps), "-w", ",".join(self.workers)]
        place = [f"--job_name={role}", f"--task_index={number}"]
        self.run(f"{role} {number}", [*arguments, *cluster, *place], environment)

    def start_all(self, *arguments: str) -> None:
        for number in range(len(self.ps)):
            self.start("ps", number)
        for number in range(len(self.workers)):
            self.start("worker", number, *arguments)

    def run(self, name: str, arguments: list[str], environment: dict[str, str]) -> None:
        command = [sys.executable, str(ROOT / "example.py"), *arguments]
        with open(self.folder / name, "ab") as output:
            self.processes[name] = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=self.folder, env={**os.environ, **environment}
            )

    def output(self, name: str) -> str:
        return (self.folder / name).read_text()

    def wait(self, *names: str) -> list[int]:
        """Exit statuses of the tasks when they have ended."""
        return [self.processes[name].wait(TIMEOUT) for name in names]

    def wait_for_steps(self, name: str) -> None:
        """Until the task has reported progress from now on."""
        start, deadline = len(self.output(name)), time.monotonic() + TIMEOUT
        while "Step:" not in self.output(name)[start:]:
            assert self.processes[name].poll() is None, self.output(name)
            assert time.monotonic() < deadline, self.output(name)
            time.sleep(0.05)

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        self.processes[name].send_signal(number)
        return self.processes[name].wait(TIMEOUT)


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of one ps and two workers, or as parametrised; nothing of it outlives the test."""
    cluster = Cluster(tmp_path, **getattr(request, "param", {}))
    yield cluster
    for process in cluster.processes.values():
        process.kill()
        process.wait()


def alone(folder: Path, *arguments: str) -> str:
    """Output of example.py as a single process, which must end well."""
    command = [sys.executable, str(ROOT / "example.py"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def result(output: str, name: str) -> float:
    """Number of the last line such as `Test-Accuracy: 0.9712`."""
    return float(re.findall(rf"^{name}: ([\d.]+)s?$", output, re.MULTILINE)[-1])


def saved(folder: Path, variable: str) -> np.ndarray:
    """Value of a variable in the latest checkpoint."""
    return tf.train.load_variable(tf.train.latest_checkpoint(str(folder)), variable)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose two workers have trained on the sample with the default settings."""
    cluster = Cluster(tmp_path_factory.mktemp("finished"))
    cluster.start_all("--checkpoint-dir", "saved", "--log-dir", "logs")
    cluster.statuses = cluster.wait("worker 0", "worker 1")
    yield cluster
    cluster.kill("ps 0")


def test_workers_end_well_and_the_ps_serves_on(finished: Cluster) -> None:
    assert finished.statuses == [0, 0]
    assert finished.processes["ps 0"].poll() is None
    assert finished.output("ps 0").splitlines()[-1] == f"ps 0 serves at {finished.ps[0]} until it is stopped"


def test_the_model_learns(finished: Cluster) -> None:
    assert result(finished.output("worker 0"), "Test-Accuracy") > 0.88
    assert result(finished.output("worker 0"), "Final Cost") < 0.5


@pytest.mark.parametrize("number", [0, 1])
def test_progress_is_printed_in_lines(finished: Cluster, number: int) -> None:
    output = finished.output(f"worker {number}")
    fields = rf"Worker: {number},  Step: \d+,  Epoch:  6,  Batch:  25 of  25,  Cost: \d\.\d{{4}},  "
    assert re.search(rf"^{fields}AvgTime: [\d.]+ms,  Left: 0s$", output, re.MULTILINE)
    assert "No folder MNIST_data: using the SAMPLE of 6000 digits, not the full MNIST\n" in output
    assert output.splitlines()[-2] == f"Total Time: {result(output, 'Total Time'):.2f}s"


def test_an_epoch_is_one_pass_of_all_workers_together(finished: Cluster) -> None:
    assert saved(finished.folder / "saved", "steps").tolist() == [6 * 25, 6 * 25]


@pytest.mark.parametrize("number", [0, 1])
def test_tensorboard_gets_curves_of_each_worker_and_the_graph_once(finished: Cluster, number: int) -> None:
    (log,) = (finished.folder / "logs" / f"worker-{number}").iterdir()
    events = list(tf.train.summary_iterator(str(log)))
    points = {value.tag: value.simple_value for event in events for value in event.summary.value}
    assert points.keys() == {"cost", "accuracy", "images_per_second"}
    assert 0 <= points["accuracy"] <= 1 < points["images_per_second"]
    assert len([event for event in events if event.summary.value]) == 2, "after 100 steps and at the end, 150"
    assert len([event for event in events if event.graph_def]) == (1 if number == 0 else 0)


def test_a_worker_that_ends_first_does_not_keep_the_others(cluster: Cluster) -> None:
    cluster.start("ps", 0)
    cluster.start("worker", 0, "--epochs", "1")
    cluster.start("worker", 1, *LONG)

    cluster.wait_for_steps("worker 1")
    assert cluster.wait("worker 0") == [0]

    cluster.wait_for_steps("worker 1")


@pytest.mark.parametrize("cluster", [{"ps": 2, "workers": 2}], indirect=True)
def test_tf_config_with_a_chief_and_two_ps(cluster: Cluster, tmp_path: Path) -> None:
    spec = {"ps": cluster.ps, "chief": cluster.workers[:1], "worker": cluster.workers[1:]}
    for role, number in (("ps", 0), ("ps", 1), ("chief", 0), ("worker", 0)):
        config = json.dumps({"cluster": spec, "task": {"type": role, "index": number}})
        cluster.run(f"{role} {number}", ["--checkpoint-dir", "saved"], {"TF_CONFIG": config})

    assert cluster.wait("chief 0", "worker 0") == [0, 0]

    assert result(cluster.output("chief 0"), "Test-Accuracy") > 0.88
    assert "Worker: 1," in cluster.output("worker 0")
    accuracy = result(cluster.output("chief 0"), "Test-Accuracy")
    again = alone(tmp_path, "--checkpoint-dir", "saved")  # nothing left to do for another cluster either
    assert "Step:" not in again
    assert result(again, "Test-Accuracy") == accuracy


@pytest.mark.parametrize("mode", ["--epochs=300", "--sync"])
def test_each_task_may_die_and_come_back(cluster: Cluster, tmp_path: Path, mode: str) -> None:
    arguments = ["--checkpoint-dir", "saved", *LONG, mode]
    cluster.start_all(*arguments)
    for victim in ("worker 1", "worker 0", "ps 0"):
        cluster.wait_for_steps("worker 0")
        cluster.wait_for_steps("worker 1")
        cluster.kill(victim)
        role, number = victim.split()
        cluster.start(role, int(number), *(arguments if role == "worker" else []))

    assert cluster.wait("worker 0", "worker 1") == [0, 0]

    assert saved(tmp_path / "saved", "steps").tolist() == [300 * 25] * 2
    resumed = cluster.output("worker 0").count("Resuming from")
    assert resumed == 1, "only the loss of the ps should have cost what was trained since the last checkpoint"


def test_the_chief_saves_at_sigterm_and_the_next_job_resumes(cluster: Cluster, tmp_path: Path) -> None:
    arguments = ["--checkpoint-dir", "saved", "--epochs", "100", "--report-every", "20"]
    cluster.start_all(*arguments)
    cluster.wait_for_steps("worker 0")
    assert cluster.kill("worker 0", signal.SIGTERM) == 128 + signal.SIGTERM
    assert 0 < saved(tmp_path / "saved", "steps").sum() < 100 * 50

    for name in ("ps 0", "worker 1"):
        cluster.kill(name)
    cluster.start_all(*arguments)

    assert cluster.wait("worker 0", "worker 1") == [0, 0]
    assert "Resuming from saved/model.ckpt-" in cluster.output("worker 0")
    assert saved(tmp_path / "saved", "steps").tolist() == [100 * 25] * 2


@pytest.mark.parametrize("victim", ["worker 1", "ps 0"])
def test_a_chief_that_waits_for_the_dead_stops_at_sigterm(cluster: Cluster, victim: str) -> None:
    cluster.start_all("--sync", "--checkpoint-dir", "saved", *LONG)
    cluster.wait_for_steps("worker 0")
    cluster.kill(victim)
    time.sleep(2)  # it waits inside session.run() by now

    assert cluster.kill("worker 0", signal.SIGTERM) == 128 + signal.SIGTERM


def small_mnist(folder: Path, images: int) -> Path:
    """A data folder with the first so many digits of the sample, for training and for testing."""
    folder.mkdir()
    for file in SAMPLE.glob("*.gz"):
        content = gzip.decompress(file.read_bytes())
        head, size = (16, 784) if "idx3" in file.name else (8, 1)
        count = images.to_bytes(4, "big")
        (folder / file.stem).write_bytes(content[:4] + count + content[8 : head + images * size])
    return folder


def sgd(data: Path, workers: int, local_steps: int, rounds: int) -> np.ndarray:
    """The parameters after synchronous training in plain numpy: an average over all workers per round."""
    if not hasattr(example, "tf"):
        example.import_tensorflow()
    with tf.Graph().as_default(), tf.Session() as session:
        parameters = session.run(example.new_parameters(None)).astype(np.float64)
    images, labels, _, _ = mnist.load(data)
    mean = images.mean(axis=0)
    shares = [mnist.take_share(images, labels, worker, workers) for worker in range(workers)]
    streams = [mnist.batches(len(share[1]), 20, worker, 0) for worker, share in enumerate(shares)]
    for _ in range(rounds):
        changes = []
        for (images, labels), stream in zip(shares, streams):
            local = parameters.copy()
            for _ in range(local_steps):
                chosen = next(stream)
                local -= 0.5 * gradient(local, (images[chosen] - mean) / 255, labels[chosen])
            changes.append(parameters - local)
        parameters = parameters - np.mean(changes, axis=0)
    return parameters


def gradient(parameters: np.ndarray, pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of the mean cross entropy of a 784-100-10 network."""
    w1, b1, w2, b2 = np.split(parameters, np.cumsum([78400, 100, 1000]))
    hidden = 1 / (1 + np.exp(-(pixels @ w1.reshape(784, 100) + b1)))
    scores = np.exp(hidden @ w2.reshape(100, 10) + b2)
    error = (scores / scores.sum(axis=1, keepdims=True) - np.eye(10)[labels]) / len(labels)
    below = error @ w2.reshape(100, 10).T * hidden * (1 - hidden)
    parts = pixels.T @ below, below.sum(axis=0), hidden.T @ error, error.sum(axis=0)
    return np.concatenate([part.ravel() for part in parts])


SGD = ["--batch-size=20", "--learning-rate=0.5", "--checkpoint-dir=saved", "--data-dir=data"]


@pytest.mark.parametrize("cluster", [{"ps": 2, "workers": 2}], indirect=True)
@pytest.mark.parametrize("local_steps", [1, 3])
def test_sync_averages_the_changes_of_all_workers(cluster: Cluster, tmp_path: Path, local_steps: int) -> None:
    data = small_mnist(tmp_path / "data", 240)  # six batches for each worker
    cluster.start_all("--sync", f"--local-steps={local_steps}", "--epochs=2", *SGD)

    assert cluster.wait("worker 0", "worker 1") == [0, 0]

    expected = sgd(data, workers=2, local_steps=local_steps, rounds=12 // local_steps)
    assert np.allclose(saved(tmp_path / "saved", "parameters"), expected, atol=1e-5)


def test_a_single_process_does_plain_sgd_also_with_local_steps(tmp_path: Path) -> None:
    data = small_mnist(tmp_path / "data", 240)
    alone(tmp_path, "--local-steps=5", "--epochs=1", *SGD)  # of 12 batches, rounded up to 3 exchanges

    expected = sgd(data, workers=1, local_steps=1, rounds=15)
    assert np.allclose(saved(tmp_path / "saved", "parameters"), expected, atol=1e-5)


def test_on_a_terminal_one_line_is_renewed(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "example.py"), "--report-every", "50"]
    screen, terminal = pty.openpty()
    with subprocess.Popen(command, stdout=terminal, stderr=subprocess.DEVNULL, cwd=tmp_path) as process:
        os.close(terminal)
        shown = read_all(screen)
        assert process.wait(TIMEOUT) == 0
    _, *renewals, _ = shown.split("\rWorker: 0,  Step: ")
    assert [line.split(",")[0] for line in renewals] == ["50", "100", "150", "200", "250"]
    assert all(line.endswith("s\033[K") for line in renewals)


def read_all(terminal: int) -> str:
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # EIO: the other end is closed
            return shown.decode()


def test_a_port_that_is_taken_is_named(cluster: Cluster) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", int(cluster.ps[0].split(":")[1])))
        cluster.start("ps", 0)
        assert cluster.wait("ps 0") == [2]
    message = rf"^example.py: error: ps 0 .*{cluster.ps[0]}.* cannot serve: "
    assert re.search(message, cluster.output("ps 0"), re.MULTILINE)
