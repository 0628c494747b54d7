"""Runs of tf_submit.py on this machine, without a scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
# What a job of Grid Engine would have in its environment; the tests may themselves run in one.
JOB_VARIABLES = ("PE_HOSTFILE", "NSLOTS", "JOB_ID", "JOB_NAME", "SGE_TASK_ID", "SGE_O_WORKDIR")


class Folder:
    """The folder from which tf_submit.py is run, and where it leaves its traces."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> str:
        """Write an executable file; its path."""
        path = self.path / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def run(
        self,
        *words: str,
        python: Sequence[str] = (sys.executable,),
        timeout: float = 60,
        **variables: str,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `tf_submit.py WORDS...` with these environment variables."""
        environment = {name: value for name, value in os.environ.items() if name not in JOB_VARIABLES}
        return subprocess.run(
            [*python, CHECKOUT / "tf_submit.py", *words],
            cwd=self.path,
            env={**environment, **variables},
            capture_output=True,
            timeout=timeout,
        )

    def processes(self) -> list[str]:
        """The processes that work in this folder."""
        found = []
        for process in psutil.process_iter(["cwd", "cmdline"]):
            if process.info["cwd"] == str(self.path):
                found.append(" ".join(process.info["cmdline"] or ()))
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """An empty folder; nothing must be running there ten seconds after the test."""
    folder = Folder(tmp_path)
    yield folder
    end = time.monotonic() + 10
    while folder.processes() and time.monotonic() < end:
        time.sleep(0.1)
    assert folder.processes() == []
