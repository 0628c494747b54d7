#!/usr/bin/env python3
"""Measure example.py beside the straightforward program: one ps and two workers on this machine.

    mnist.py [--data-dir MNIST_data] [--rounds 3] [--full]

Needs the full MNIST. Each round trains once with every variant, so that all of them meet the same machine;
shown are medians over the rounds. --full lets the straightforward program train for its 20 epochs, which
takes minutes and shows its accuracy, too; otherwise it trains for one.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import example  # noqa: E402

PLAIN, EXAMPLE = Path(__file__).with_name("_straightforward_mnist.py"), ROOT / "example.py"
WORKERS, EPOCH, REPORT = 2, 60000, 100 * 100  # processes; images; images per progress line and worker
PLAIN_EPOCHS = 20  # as published; for each worker by itself
RESULTS = "Total Time", "Test-Accuracy"
DEFAULT: dict[str, str] = {}
ONE_THREAD = {f"TF_NUM_{kind}_THREADS": "1" for kind in ("INTRAOP", "INTEROP")}
VARIANTS = {
    "straightforward": (PLAIN, DEFAULT, []),
    "straightforward, one thread per pool": (PLAIN, ONE_THREAD, []),
    "example.py": (EXAMPLE, DEFAULT, []),
    "example.py, one thread per pool": (EXAMPLE, ONE_THREAD, []),
    "example.py --sync, one thread per pool": (EXAMPLE, ONE_THREAD, ["--sync"]),
    "example.py --local-steps 5, one thread per pool": (EXAMPLE, ONE_THREAD, ["--local-steps=5"]),
    "example.py --local-steps 20, one thread per pool": (EXAMPLE, ONE_THREAD, ["--local-steps=20"]),
}


class Run(NamedTuple):
    seconds: float  # of training, from the first step to the last
    images: int  # all workers together
    cpu: float  # microseconds per image: the workers and the ps
    memory: float  # MB: the larger worker's peak
    accuracy: float

    @property
    def speed(self) -> float:
        return self.images / self.seconds


class Worker(NamedTuple):
    seconds: float
    cpu: float  # seconds: its own since its first progress line
    ps_cpu: float  # seconds: that of the ps in the same time
    memory: float
    accuracy: float


def train(script: Path, environment: dict[str, str], arguments: list[str], epochs: int) -> Run:
    """One training on this machine."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(1 + WORKERS)]
    addresses = [f"localhost:{listener.getsockname()[1]}" for listener in sockets]
    for listener in sockets:
        listener.close()
    command = [sys.executable, str(script), *arguments, f"--epochs={epochs}", f"-s{addresses[0]}"]
    command.append(f"-w{','.join(addresses[1:])}")
    places = [["--job_name=ps"]] + [["--job_name=worker", f"--task_index={i}"] for i in range(WORKERS)]
    ps, *workers = (start(command + place, environment) for place in places)
    try:
        with ThreadPoolExecutor() as pool:
            found = list(pool.map(lambda worker: follow(worker, ps), workers))
    finally:
        for process in (ps, *workers):
            process.kill()
            process.wait()
    images = epochs * EPOCH * (WORKERS if script == PLAIN else 1)
    cpu = sum(worker.cpu for worker in found) + max(worker.ps_cpu for worker in found)
    return Run(
        max(worker.seconds for worker in found),
        images,
        1e6 * cpu / (images - WORKERS * REPORT),
        max(worker.memory for worker in found),
        max(found).accuracy,  # of the one that came last
    )


def start(command: list[str], environment: dict[str, str]) -> psutil.Popen:
    own = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}
    return psutil.Popen(
        command, env=own | environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def follow(worker: psutil.Popen, ps: psutil.Popen) -> Worker:
    """Read what the worker prints, to its end."""
    begun, output = None, ""
    for line in worker.stdout:
        output += line
        if "Step:" in line:
            now = cpu_seconds(worker), cpu_seconds(ps)
            begun = begun or now
            memory = peak_memory(worker)
    assert begun, "the worker made no progress"
    seconds, accuracy = (float(re.search(rf"{what}: ([\d.]+)", output)[1]) for what in RESULTS)
    return Worker(seconds, now[0] - begun[0], now[1] - begun[1], memory, accuracy)


def cpu_seconds(process: psutil.Popen) -> float:
    times = process.cpu_times()
    return times.user + times.system


def peak_memory(process: psutil.Popen) -> float:
    """MB, as the kernel has it."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data-dir", type=Path, default=Path("MNIST_data"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    if not options.data_dir.exists():
        print(f"no folder {options.data_dir}: `example.py --download` gets it", file=sys.stderr)
        return
    plain_epochs = PLAIN_EPOCHS if options.full else 1
    runs: dict[str, list[Run]] = {name: [] for name in VARIANTS}
    for _ in range(options.rounds):
        for name, (script, environment, arguments) in VARIANTS.items():
            epochs = plain_epochs if script == PLAIN else example.parse_arguments([]).epochs
            data = f"--data-dir={options.data_dir}"
            runs[name].append(train(script, environment, [*arguments, data], epochs))
            print(f"{name}: {runs[name][-1]}", file=sys.stderr, flush=True)
    report({name: Run(*map(statistics.median, zip(*found))) for name, found in runs.items()}, plain_epochs)


def report(runs: dict[str, Run], plain_epochs: int) -> None:
    """The medians as a table, each variant compared to the straightforward one with the same threads."""
    print("| variant | images/s | times | CPU per image | times less | training | accuracy | memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, run in runs.items():
        plain = runs[name.replace(name.split(",")[0], "straightforward")]
        training = run.seconds * (PLAIN_EPOCHS / plain_epochs if name.startswith("straightforward") else 1)
        print(
            f"| {name} | {run.speed:,.0f} | {run.speed / plain.speed:.2f} "
            f"| {run.cpu:.1f} µs | {plain.cpu / run.cpu:.2f} "
            f"| {training:.1f} s | {run.accuracy:.2%} | {run.memory:.0f} MB |"
        )


if __name__ == "__main__":
    main()
