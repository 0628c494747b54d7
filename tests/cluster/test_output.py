"""Output comes through a real qrsh byte by byte, though a bare one loses the end of it."""

from __future__ import annotations

import functools
import hashlib
import runpy
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from jobs import SCRIPTS, Folder

OUTPUT = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "output.py"))["output"]
KINDS = 3


def pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def digest(pieces: Iterable[bytes]) -> str:
    found = hashlib.sha1()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


@functools.cache
def expected(number: int) -> str:
    return digest(OUTPUT(number))


@pytest.mark.parametrize("options", [[], ["--per-host"]], ids=["one qrsh per task", "one agent per host"])
def test_nothing_is_lost_of_what_tasks_print_that_end_at_once(folder: Folder, options: list[str]) -> None:
    words = [*options, "-q", "--ps", "0", f"{SCRIPTS}/output.py", "{task_index}"]
    job = folder.submit(*words, slots=KINDS, qsub=["-q", "all.q@node1,all.q@node2"]).wait()
    assert job.status == 0
    for number in range(KINDS):
        assert digest(pieces(job.traces / "logs" / f"worker-{number}.log")) == expected(number)
    for path in (*job.folder.glob(f"*.o{job.id}"), *job.traces.glob("logs/*")):
        path.unlink()  # half a gigabyte
