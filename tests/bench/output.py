"""How fast the launcher passes on the output of a task: prefixed to stdout, unchanged to the log.

    python tests/bench/output.py [MEGABYTES]

Each row is one kind of output, in pieces as they come through a pipe; rates are in MB of output per second
of this process's CPU time: "alone" with /dev/null for stdout and log, "written" with a pipe to another
process and a file, "bare" what two plain writes of the same pieces to such a pipe and file reach.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tf_submit import Console, Task, TaskLog  # noqa: E402

PIECE = 64 * 1024  # bytes: what a pipe holds
SAMPLE = 8_000_000  # bytes
KINDS = {
    "lines of 60 bytes": b"x" * 59 + b"\n",
    "lines of 1 MB": b"x" * 999_999 + b"\n",
    "random bytes": os.urandom(SAMPLE),
}


def pieces(unit: bytes) -> list[bytes]:
    """A sample of one kind of output."""
    text = unit * (SAMPLE // len(unit))
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def rate(write: Callable[[bytes], object], unit: bytes, megabytes: int) -> float:
    """MB per second of CPU time."""
    sample = pieces(unit)
    rounds = max(1, megabytes * 1_000_000 // SAMPLE)
    began = time.process_time()
    for _ in range(rounds):
        for piece in sample:
            write(piece)
    return rounds * sum(map(len, sample)) / 1e6 / (time.process_time() - began)


def launcher(path: str, stdout: int) -> Callable[[bytes], object]:
    log = TaskLog(Task("worker", 0, "node2"), path, Console(stdout=stdout))
    return lambda piece: log.write(1, piece)


def plain_writes(path: str, stdout: int) -> Callable[[bytes], object]:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return lambda piece: (os.write(log, piece), os.write(stdout, piece))


def main() -> None:
    megabytes = int(sys.argv[1]) if sys.argv[1:] else 400
    null = os.open(os.devnull, os.O_WRONLY)
    reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    pipe = reader.stdin.fileno()
    print(f"{'output':20} {'alone':>6} {'written':>8} {'bare':>6}  MB/s")
    for kind, unit in KINDS.items():
        alone = rate(launcher(os.devnull, null), unit, megabytes)
        with tempfile.TemporaryDirectory() as folder:
            written = rate(launcher(f"{folder}/task.log", pipe), unit, megabytes)
            bare = rate(plain_writes(f"{folder}/bare.log", pipe), unit, megabytes)
        print(f"{kind:20} {alone:6.0f} {written:8.0f} {bare:6.0f}")
    reader.communicate()


if __name__ == "__main__":
    main()
