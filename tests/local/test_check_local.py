"""`tf_submit.py --local N --check`: the installation on this machine."""

from __future__ import annotations

import re
import sys

GOOD = "class config: list_physical_devices = lambda kind: []\n__version__ = '1.3.0'\n"
SLOW = """\
import psutil, signal, time
[launcher] = [process for process in psutil.Process().parents() if "--check" in process.cmdline()]
launcher.send_signal(signal.SIGINT)
time.sleep(60)
"""


def check(folder, tensorflow: str, *options: str) -> tuple[int, list[str], list[str]]:
    """Exit status, lines and errors of a check with this module in the place of TensorFlow."""
    folder.write("tensorflow.py", tensorflow)
    done = folder.run("--local", "2", "--check", *options, PYTHONPATH=str(folder.path))
    lines, errors = (
        re.findall(r"^tf_submit(?: \|| error:|: error:) (.*)$", text.decode(), re.MULTILINE)
        for text in (done.stdout, done.stderr)
    )
    return done.returncode, lines, errors


def test_all_is_well(folder):
    status, lines, errors = check(folder, GOOD)
    assert (status, errors) == (0, [])
    assert lines[0] == "checking 1 host"
    assert re.match(r"localhost +2 +3\.\S+ +\d\S+ +1\.3\.0 +localhost:\d+ .* ok$", lines[2])
    assert lines[-1] == "0 faults found"
    assert sorted(path.name for path in folder.path.iterdir() if path.suffix) == ["tensorflow.py"]


def test_faults(folder):
    status, lines, errors = check(folder, "import missing", "--interface", "no0")
    assert (status, lines[-1]) == (1, "2 faults found")
    assert errors[0].startswith("localhost: no interface no0 here; there are: ")
    assert errors[1:] == [
        "localhost: TensorFlow cannot be imported: ModuleNotFoundError: No module named 'missing'",
        f"    see there: {sys.executable} -c 'import tensorflow'",
    ]


def test_a_check_that_takes_too_long(folder):
    status, lines, errors = check(folder, "import time; time.sleep(60)", "--start-timeout", "2")
    assert (status, errors[0]) == (1, "localhost: no answer within 2 s")
    assert re.match(r"localhost .* 1 fault$", lines[2])


def test_a_signal_ends_the_check_and_all_that_it_started(folder):
    status, lines, errors = check(folder, SLOW)
    assert (status, errors) == (2, ["the check was stopped by SIGINT"])
