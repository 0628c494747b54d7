"""The Puppet module on real hosts: from a bare cluster without internet to finished jobs, and back.

The compute node's class is applied on node1 and the qmaster's on master, both to /home, which they share.
Puppet and pip take their time, so the tests follow one installation through its life, in the file's order.
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

pytestmark = pytest.mark.skipif(
    not (shutil.which("puppet") or os.environ.get("CI")),
    reason="puppet is not installed (Debian's package puppet-agent)",
)

CHECKOUT = Path(__file__).resolve().parents[2]
MODULE = CHECKOUT / "puppet"

NODE = """
  class { 'tf_submit': ensure => %s, directory => '/home/tf_submit' }
  class { 'tf_submit::node': venv => '/home/tf_submit/venv', wheels => '/home/wheels' }
"""
QMASTER = """
  class { 'tf_submit': ensure => %s, directory => '/home/tf_submit' }
  include tf_submit::qmaster
"""
ROLL_OUT = ((MASTER, QMASTER), ("node1", NODE))

UNCHANGED, CHANGED, FAILED = 0, 2, (4, 6)  # exit statuses of puppet apply --detailed-exitcodes


def default(parameter: str) -> str:
    """The module's own value of a parameter: `default("psutil_version")` is "7.2.2"."""
    found = re.search(rf"\${parameter} = '(.+)'", (MODULE / "manifests" / "node.pp").read_text())
    assert found
    return found[1]


TENSORFLOW = f"tensorflow-cpu=={default('tensorflow_version')}"
PSUTIL = f"psutil=={default('psutil_version')}"
OLD_PSUTIL = "psutil==7.1.0"


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of Puppet: its exit status and what it said."""

    status: int
    output: str

    @property
    def changed(self) -> set[str]:
        """The resources that it changed, such as {"File[/home/tf_submit/example.py]"}."""
        return set(re.findall(r"^Notice: /Stage\[main\]/[^[]*/(\w+\[.*\])/\w+: ", self.output, re.MULTILINE))


def apply(cluster: Cluster, host: str, manifest: str, *options: str) -> Run:
    """Apply a manifest on a host, as strict as Puppet 8 is without being asked."""
    command = ["puppet", "apply", "--color=false", "--detailed-exitcodes", "--modulepath=/home/modules"]
    strict = ["--strict=error", "--strict_variables"]
    folders = [
        f"--{kind}dir=/tmp/puppet/{kind}" for kind in ("conf", "code", "var", "log", "run", "public", "ssl")
    ]
    argv = [*command, *strict, *folders, *options]
    done = cluster.run(host, argv, user="root", stdin=manifest, timeout=600)
    return Run(done.returncode, done.stdout + done.stderr)


def pip(cluster: Cluster, *arguments: str) -> str:
    """What the environment's pip says."""
    return cluster.root("node1", "/home/tf_submit/venv/bin/pip", *arguments)


def collect_wheels(folder: Path) -> None:
    """Download the wheels, as an administrator does for nodes without internet."""
    collector = folder / "collector"
    subprocess.run(["/usr/bin/python3", "-m", "venv", collector], check=True)
    download: list[str | Path] = [collector / "bin" / "pip", "download", "--quiet", "--dest", folder]
    subprocess.run([*download, TENSORFLOW, PSUTIL], check=True)
    subprocess.run([*download, "--no-deps", OLD_PSUTIL], check=True)


@pytest.fixture(scope="module")
def cluster(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster without a parallel environment; its hosts have the module and the wheels."""
    with Cluster("puppet", hosts=2, slots=2, venv=cluster.venv, bare=True) as bare:
        home = bare.state / "home"
        (home / "modules").mkdir()
        subprocess.run(["cp", "-rL", MODULE, home / "modules" / "tf_submit"], check=True)
        collect_wheels(home / "wheels")
        yield bare


@pytest.fixture(scope="module")
def first_runs(cluster: Cluster) -> dict[str, Run]:
    return {host: apply(cluster, host, manifest % "present") for host, manifest in ROLL_OUT}


installed = pytest.mark.usefixtures("first_runs")


@pytest.fixture
def directory(cluster: Cluster) -> Path:
    """The module's folder on the hosts, as the machine sees it."""
    return cluster.state / "home" / "tf_submit"


def test_noop_tells_what_would_be_done_and_does_nothing(cluster: Cluster, directory: Path) -> None:
    run = apply(cluster, "node1", NODE % "present" + "include tf_submit::qmaster", "--noop")
    assert run.status == UNCHANGED, run.output
    assert "Exec[create /home/tf_submit/venv]/returns: current_value 'notrun'" in run.output
    assert not directory.exists()


def test_the_first_run_installs(first_runs: dict[str, Run], cluster: Cluster, directory: Path) -> None:
    assert {host: run.status for host, run in first_runs.items()} == {MASTER: CHANGED, "node1": CHANGED}
    for script in ("tf_submit.py", "example.py"):
        assert (directory / script).read_bytes() == (CHECKOUT / script).read_bytes()
    assert {TENSORFLOW, PSUTIL} < set(pip(cluster, "freeze").replace("_", "-").split())
    assert cluster.root(MASTER, "qconf", "-spl").split() == ["tensorflow"]


@installed
def test_the_second_run_changes_nothing(cluster: Cluster) -> None:
    for host, manifest in ROLL_OUT:
        run = apply(cluster, host, manifest % "present")
        assert run.status == UNCHANGED, run.output


@installed
def test_a_job_trains_with_the_python_of_the_environment(cluster: Cluster) -> None:
    script = (
        "import os, sys\n"
        "print('this is', sys.executable, flush=True)\n"
        "os.execv(sys.executable, [sys.executable, '/home/tf_submit/example.py', *sys.argv[1:]])\n"
    )
    (cluster.home() / "script.py").write_text(script)
    # As the module's README shows.
    resources = ("-b", "y", "-pe", "tensorflow", "3", "-j", "y", "-cwd")
    job = cluster.qsub(*resources, "/home/tf_submit/venv/bin/tf_submit", "script.py", "--epochs", "1")
    records = cluster.wait(job)
    output = cluster.output(job)
    assert [record["exit_status"] for record in records] == ["0"] * 4, output
    assert output.count("this is /home/tf_submit/venv/bin/python\n") == 3, output
    assert "Test-Accuracy" in output


@installed
def test_what_has_drifted_is_put_back(cluster: Cluster, directory: Path) -> None:
    pip(cluster, "install", "--quiet", "--no-index", "--find-links=/home/wheels", OLD_PSUTIL)
    pip(cluster, "uninstall", "--quiet", "--yes", "gast")  # TensorFlow depends on it
    (directory / "example.py").write_text("raise SystemExit('edited by hand')\n")

    run = apply(cluster, "node1", NODE % "present")
    assert (run.status, run.changed) == (
        CHANGED,
        {"File[/home/tf_submit/example.py]", "Exec[install /home/tf_submit/venv/requirements.txt]"},
    ), run.output
    assert PSUTIL in pip(cluster, "freeze").split()
    assert pip(cluster, "check") == "No broken requirements found.\n"
    assert (directory / "example.py").read_bytes() == (CHECKOUT / "example.py").read_bytes()
    assert apply(cluster, "node1", NODE % "present").status == UNCHANGED


@installed
def test_an_environment_that_lost_its_python_is_built_anew(cluster: Cluster, directory: Path) -> None:
    python = directory / "venv" / "bin" / "python3"
    python.unlink()
    python.symlink_to("/usr/bin/python3.0")  # as after an upgrade of the operating system

    without_wheels = (NODE % "present").replace("/home/wheels", "/home")
    run = apply(cluster, "node1", without_wheels)
    assert {"Exec[discard /home/tf_submit/venv]", "Exec[create /home/tf_submit/venv]"} < run.changed, (
        run.output
    )
    assert run.status in FAILED
    assert f"No matching distribution found for {TENSORFLOW}" in run.output


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
    assert list(letter.parent.iterdir()) == [letter]
    assert letter.read_text() == "mine"


@installed
def test_absent_removes_everything(cluster: Cluster, directory: Path) -> None:
    for status in (CHANGED, UNCHANGED):
        for host, manifest in ROLL_OUT:
            run = apply(cluster, host, manifest % "absent")
            assert run.status == status, run.output
    assert not directory.exists()
    assert "tensorflow" not in cluster.root(MASTER, "qconf", "-sq", "all.q")
    assert "tensorflow" not in cluster.run(MASTER, ["qconf", "-spl"], user="root").stdout
