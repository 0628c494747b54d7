"""TensorBoard beside a job: a stand-in module shows how it is started, found and ended."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tf_submit
from tf_submit import Console, JobFolder, Options

SERVER = """\
import socket, sys
print("serving", *sys.argv[1:], flush=True)
server = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
while True:
    server.accept()
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a tensorboard/main.py of the given text before all others."""

    def install(text):
        package = tmp_path / "modules" / "tensorboard"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        if text:
            (package / "main.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))

    monkeypatch.chdir(tmp_path)
    return install


@pytest.fixture
def output(tmp_path):
    """The stdout and stderr of a console, as one text."""

    class Output:
        fd = os.open(tmp_path / "output", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        console = Console(stdout=fd, stderr=fd)

        @property
        def text(self):
            return (tmp_path / "output").read_text()

    output = Output()
    yield output
    os.close(output.fd)


def until(condition, seconds=20.0):
    """Waits for the condition to hold and returns its value."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


def accepts(port):
    with socket.socket() as near:
        return near.connect_ex(("127.0.0.1", port)) == 0


def beside(output, **options):
    """What runs TensorBoard beside a job of the working directory."""
    options = Options(
        **{"tensorboard": True, "tensorboard_bind": "127.0.0.1", "python": sys.executable, **options}
    )
    folder = JobFolder.create("train", "17")
    return tf_submit.tensorboard(options, "node1", folder, {"SGE_O_HOST": "login1"}, output.console)


LOG = Path("train.tf17/logs/tensorboard.log")


def ports_of(output):
    return [int(port) for port in re.findall(r"TensorBoard: http://127.0.0.1:(\d+)/", output.text)]


@pytest.mark.parametrize(("wish", "logdir"), [(None, "train.tf17"), ("runs/1", "runs/1")])
def test_it_serves_as_long_as_the_job_runs(install, output, wish, logdir):
    install(SERVER)
    with beside(output, tensorboard_logdir=wish):
        [port] = ports_of(output)
        assert until(lambda: accepts(port))
        assert LOG.read_text() == f"serving --logdir {logdir} --host 127.0.0.1 --port {port}\n"
    assert not accepts(port)
    assert "warning" not in output.text


def test_without_the_option_there_is_none(output):
    with tf_submit.tensorboard(Options(), "node1", JobFolder("train.tf17", "17"), {}, output.console):
        assert output.text == ""


def test_it_takes_the_next_port_that_is_free(install, output):
    install(SERVER)
    with beside(output), beside(output):
        first, second = ports_of(output)
        assert second > first
        assert until(lambda: accepts(first) and accepts(second))


def test_it_ends_even_when_it_does_not_react(install, output, monkeypatch):
    install("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")
    monkeypatch.setattr(tf_submit.TensorBoard, "LEAVE", 0.2)
    board = tf_submit.TensorBoard(sys.executable, "runs", "127.0.0.1", "tensorboard.log", output.console)
    stat = Path(f"/proc/{board.process.pid}/stat")
    assert until(lambda: ") T " in stat.read_text())
    board.stop()
    assert board.process.returncode == -signal.SIGKILL
    assert output.text == ""


def test_it_goes_when_the_launcher_is_killed(install, tmp_path):
    install("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)")
    program = (
        "import sys, time, tf_submit\n"
        "tf_submit.TensorBoard(sys.executable, 'runs', '127.0.0.1', 'tensorboard.log', tf_submit.Console())\n"
        "time.sleep(1000)"
    )
    path = os.pathsep.join([str(Path(tf_submit.__file__).parent), os.environ["PYTHONPATH"]])
    launcher = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path})
    log = tmp_path / "tensorboard.log"
    assert until(lambda: log.exists() and log.read_text().endswith("\n"))
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    assert until(lambda: not Path(f"/proc/{int(log.read_text())}").exists())


@pytest.mark.parametrize(
    ("main", "why"),
    [
        (None, "No module named 'tensorboard.main'"),
        (
            "print('no such plugin')\nraise SystemExit(3)",
            "ended with exit status 3, the job goes on: no such plugin",
        ),
        ("import os\nos.kill(os.getpid(), 9)", "was killed by SIGKILL, the job goes on: "),
    ],
)
def test_when_it_is_missing_or_ends_too_early_a_warning_says_why(install, output, main, why):
    install(main)
    with beside(output):
        assert until(lambda: "warning: TensorBoard " in output.text)
    assert why.replace("'", "") in output.text.replace("'", "")
    assert output.text.endswith(f"({LOG})\n")


def test_a_python_that_does_not_exist_is_a_warning(install, output):
    with beside(output, python="/no/python"):
        assert output.text.startswith("tf_submit: warning: TensorBoard cannot be started, the job goes on: ")
        assert "/no/python" in output.text


def test_an_interface_that_does_not_exist_is_a_warning(install, output):
    with beside(output, tensorboard_bind=None, interface="no0"):
        assert "TensorBoard cannot be started, the job goes on: no interface no0 here" in output.text


def test_modules_in_the_working_directory_do_not_get_in_its_way(install, output, tmp_path):
    install(SERVER)
    (tmp_path / "threading.py").write_text("raise SystemExit('not this one')")
    with beside(output):
        assert until(lambda: accepts(ports_of(output)[0]))


@pytest.mark.parametrize(
    ("address", "gateway", "url", "tunnel"),
    [
        ("node1", "login1", "http://node1:6006/", "ssh -L 6006:node1:6006 login1"),
        ("10.1.0.7", "login1", "http://10.1.0.7:6006/", "ssh -L 6006:10.1.0.7:6006 login1"),
        ("fd00::7", "login1", "http://[fd00::7]:6006/", "ssh -L 6006:[fd00::7]:6006 login1"),
        ("0.0.0.0", "login1", "http://node1:6006/", "ssh -L 6006:node1:6006 login1"),
        ("::", "login1", "http://node1:6006/", "ssh -L 6006:node1:6006 login1"),
        ("127.0.0.1", "login1", "http://127.0.0.1:6006/", "ssh -L 6006:127.0.0.1:6006 -J login1 node1"),
        ("localhost", "node1", "http://localhost:6006/", "ssh -L 6006:localhost:6006 node1"),
    ],
)
def test_users_are_told_where_it_is_and_how_to_get_there(address, gateway, url, tunnel):
    assert tf_submit.tensorboard_lines(address, 6006, "node1", gateway) == [
        f"TensorBoard: {url}",
        f"from elsewhere: {tunnel}, then http://localhost:6006/",
    ]
