"""Asking Grid Engine's own programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tf_submit import ask_scheduler


def scheduler(folder: Path, script: str) -> dict[str, str]:
    """An environment whose qstat is this shell script."""
    qstat = folder / "qstat"
    qstat.write_text(f"#!/bin/sh\n{script}\n")
    qstat.chmod(0o755)
    return {"SGE_BINARY_PATH": str(folder)}


def test_what_the_program_prints(tmp_path: Path) -> None:
    assert ask_scheduler(scheduler(tmp_path, 'echo "$@"; echo bad >&2'), "qstat", "-j", "17") == "-j 17\n"


def test_a_program_that_cannot_be_run_has_nothing_to_say(tmp_path: Path) -> None:
    environ = scheduler(tmp_path, "")
    (tmp_path / "qstat").write_text("#!/no/such/shell\n")
    assert ask_scheduler(environ, "qstat") == ""


@pytest.mark.parametrize("name", ["USR1", "USR2", "XCPU"])
def test_grid_engines_signals_to_all_processes_of_the_job_do_not_silence_it(
    tmp_path: Path, name: str
) -> None:
    assert ask_scheduler(scheduler(tmp_path, f"kill -{name} $$; echo alive"), "qstat") == "alive\n"
