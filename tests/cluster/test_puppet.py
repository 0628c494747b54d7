"""The Puppet module on real hosts: from a bare cluster without internet to finished jobs, and back to nothing.

The compute node's class is applied on node1 and the qmaster's on master, both to /home, which all hosts share.
Puppet and pip take their time, so the tests follow one installation through its life, in the order of the file.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gridengine import MASTER, Cluster

CHECKOUT = Path(__file__).resolve().parents[2]
SYSTEM_PYTHON = "/usr/bin/python3"
WHEELS = ["tensorflow-cpu==2.21.0", "psutil==7.2.2"]  # the module's defaults
OLD_PSUTIL = "psutil==7.1.0"

NODE = """
  class { 'tf_submit': ensure => %s, directory => '/home/tf_submit' }
  class { 'tf_submit::node': venv => '/home/tf_submit/venv', wheels => '/home/wheels' }
"""
QMASTER = """
  class { 'tf_submit': ensure => %s, directory => '/home/tf_submit' }
  include tf_submit::qmaster
"""

pytestmark = pytest.mark.skipif(
    not (shutil.which("puppet") or os.environ.get("CI")), reason="puppet is not installed (package puppet-agent)"
)


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of Puppet: the exit status of --detailed-exitcodes, what it said, and the resources it changed."""

    status: int
    output: str

    @property
    def changed(self) -> set[str]:
        """Such as {"File[/home/tf_submit/example.py]"}."""
        return set(re.findall(r"^Notice: /Stage\[main\]/[^[]*/(\w+\[.*\])/\w+: ", self.output, re.MULTILINE))


NOTHING_CHANGED, CHANGED, FAILED = 0, 2, (4, 6)


def apply(cluster: Cluster, host: str, manifest: str, *options: str) -> Run:
    """Apply a manifest on a host as root, with the strictness of Puppet 8."""
    command = ["puppet", "apply", "--color=false", "--detailed-exitcodes", "--modulepath=/home/modules"]
    strict = ["--strict=error", "--strict_variables"]
    folders = [f"--{kind}dir=/tmp/puppet/{kind}" for kind in ("conf", "code", "var", "log", "run", "public")]
    done = cluster.run(
        host, [*command, *strict, *folders, *options], user="root", stdin=manifest, timeout=600
    )
    return Run(done.returncode, done.stdout + done.stderr)


def collect_wheels(folder: Path) -> None:
    """Download wheels for the system's Python, as the administrator of nodes without internet does."""
    venv = folder / "collector"
    subprocess.run([SYSTEM_PYTHON, "-m", "venv", venv], check=True)
    download = [venv / "bin" / "pip", "download", "--quiet", "--dest", folder]
    subprocess.run([*download, *WHEELS], check=True)
    subprocess.run([*download, "--no-deps", OLD_PSUTIL], check=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster("puppet", hosts=2, slots=2, bare=True) as cluster:
        home = cluster.state / "home"
        (home / "empty").mkdir()
        (home / "modules").mkdir()
        subprocess.run(["cp", "-rL", CHECKOUT / "puppet", home / "modules" / "tf_submit"], check=True)
        collect_wheels(home / "wheels")
        yield cluster


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> dict[str, Run]:
    """The first run on each host."""
    return {
        MASTER: apply(cluster, MASTER, QMASTER % "present"),
        "node1": apply(cluster, "node1", NODE % "present"),
    }


def pip(cluster: Cluster, *arguments: str) -> str:
    return cluster.root("node1", "/home/tf_submit/venv/bin/pip", *arguments)


def test_noop_tells_what_would_be_done_and_does_nothing(cluster: Cluster) -> None:
    run = apply(cluster, "node1", NODE % "present" + "include tf_submit::qmaster", "--noop")
    assert run.status == NOTHING_CHANGED, run.output
    assert "Exec[create /home/tf_submit/venv]/returns: current_value 'notrun'" in run.output
    assert not (cluster.state / "home" / "tf_submit").exists()


def test_the_first_run_installs(installed: dict[str, Run], cluster: Cluster) -> None:
    assert installed[MASTER].status == installed["node1"].status == CHANGED, installed
    folder = cluster.state / "home" / "tf_submit"
    for script in ("tf_submit.py", "example.py"):
        assert (folder / script).read_bytes() == (CHECKOUT / script).read_bytes()
        assert not (folder / script).is_symlink()
    assert pip(cluster, "list", "--format=freeze").count("tensorflow") == 1
    assert cluster.root(MASTER, "qconf", "-spl").split() == ["tensorflow"]


def test_the_second_run_changes_nothing(installed: dict[str, Run], cluster: Cluster) -> None:
    for host, manifest in ((MASTER, QMASTER), ("node1", NODE)):
        run = apply(cluster, host, manifest % "present")
        assert run.status == NOTHING_CHANGED, run.output


def test_jobs_train_with_the_environment(installed: dict[str, Run], cluster: Cluster) -> None:
    job = cluster.qsub(
        *("-pe", "tensorflow", "3", "-j", "y", "-cwd", "-S", "/home/tf_submit/venv/bin/python"),
        *("/home/tf_submit/tf_submit.py", "/home/tf_submit/example.py", "--epochs", "1"),
    )
    records = cluster.wait(job)
    output = cluster.output(job)
    assert [record["exit_status"] for record in records] == ["0"] * 4, output
    assert "Test-Accuracy" in output


def test_every_task_runs_the_python_of_the_environment(installed: dict[str, Run], cluster: Cluster) -> None:
    (cluster.home() / "probe.py").write_text("import psutil, sys, tensorflow; print('runs', sys.executable)\n")
    job = cluster.qsub(
        *("-pe", "tensorflow", "3", "-j", "y", "-cwd", "-S", "/home/tf_submit/venv/bin/python"),
        *("/home/tf_submit/tf_submit.py", "probe.py"),
    )
    cluster.wait(job)
    assert cluster.output(job).count("runs /home/tf_submit/venv/bin/python") == 3, cluster.output(job)


def test_what_has_drifted_is_put_back(installed: dict[str, Run], cluster: Cluster) -> None:
    script = cluster.state / "home" / "tf_submit" / "example.py"
    pip(cluster, "install", "--quiet", "--no-index", "--find-links=/home/wheels", OLD_PSUTIL)
    pip(cluster, "uninstall", "--quiet", "--yes", "gast")  # a dependency of TensorFlow
    script.write_text("raise SystemExit('edited by hand')\n")

    run = apply(cluster, "node1", NODE % "present")
    assert run.status == CHANGED, run.output
    assert run.changed == {
        "File[/home/tf_submit/example.py]",
        "Exec[install /home/tf_submit/venv/requirements.txt]",
    }
    assert "psutil==7.2.2" in pip(cluster, "list", "--format=freeze")
    assert pip(cluster, "check") == "No broken requirements found.\n"
    assert script.read_bytes() == (CHECKOUT / "example.py").read_bytes()
    assert apply(cluster, "node1", NODE % "present").status == NOTHING_CHANGED


def test_an_environment_whose_python_is_gone_is_built_anew(installed: dict[str, Run], cluster: Cluster) -> None:
    venv = cluster.state / "home" / "tf_submit" / "venv"
    (venv / "bin" / "python3").unlink()
    (venv / "bin" / "python3").symlink_to("/usr/bin/python3.0")  # as after an upgrade of the operating system

    run = apply(cluster, "node1", (NODE % "present").replace("/home/wheels", "/home/empty"))
    assert {"Exec[discard /home/tf_submit/venv]", "Exec[create /home/tf_submit/venv]"} < run.changed, run.output
    assert pip(cluster, "list", "--format=freeze").startswith("pip==")


def test_without_its_wheels_the_run_fails(installed: dict[str, Run], cluster: Cluster) -> None:
    run = apply(cluster, "node1", (NODE % "present").replace("/home/wheels", "/home/empty"))
    assert run.status in FAILED
    assert "No matching distribution found for tensorflow-cpu==2.21.0" in run.output


def test_a_folder_of_somebody_else_is_left_alone(cluster: Cluster) -> None:
    letter = cluster.state / "home" / "someone" / "letter"
    letter.parent.mkdir()
    letter.write_text("mine")
    manifest = """
      class { 'tf_submit': ensure => %s, directory => '/home/someone' }
      class { 'tf_submit::node': venv => '/home/someone' }
    """

    run = apply(cluster, "node1", manifest % "present")
    assert run.status in FAILED
    assert re.search("cannot create directory .*/home/someone.*: File exists", run.output), run.output
    assert apply(cluster, "node1", manifest % "absent").status == CHANGED
    assert [path.name for path in letter.parent.iterdir()] == ["letter"]
    assert letter.read_text() == "mine"


def test_absent_removes_everything(installed: dict[str, Run], cluster: Cluster) -> None:
    for host, manifest in ((MASTER, QMASTER), ("node1", NODE)):
        run = apply(cluster, host, manifest % "absent")
        assert run.status == CHANGED, run.output
    assert not (cluster.state / "home" / "tf_submit").exists()
    assert "tensorflow" not in cluster.root(MASTER, "qconf", "-sq", "all.q")
    assert "tensorflow" not in cluster.run(MASTER, ["qconf", "-spl"], user="root").stdout

    for host, manifest in ((MASTER, QMASTER), ("node1", NODE)):
        run = apply(cluster, host, manifest % "absent")
        assert run.status == NOTHING_CHANGED, run.output
