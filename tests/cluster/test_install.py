"""pe/install.sh on a real Grid Engine (tests/unit/test_install_sh.py has the flavours that cannot be had)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gridengine import MASTER, Cluster

sys.path.append(str(Path(__file__).resolve().parents[1] / "unit"))
import fake_qconf

INSTALL = "/srv/tf_submit/pe/install.sh"

SCRIPT = """\
import json, os, socket
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(f"{task['type']} on {socket.gethostname()}")
"""


class Site:
    """A cluster whose administrator runs install.sh as root on the master."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.root = cluster.root

    def install(self, *arguments, host=MASTER, user="root", env=None) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(host, [INSTALL, *arguments], user=user, cwd="/tmp", env=env)

    def done(self, *arguments: str) -> str:
        """What install.sh says when all goes well."""
        result = self.install(*arguments)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    def refused(self, *arguments: str, **how: object) -> str:
        """What install.sh says when it refuses; it must not have changed anything."""
        before = self.configuration()
        result = self.install(*arguments, **how)
        assert result.returncode == 1
        assert self.configuration() == before
        return result.stderr

    def configuration(self) -> list[str]:
        """All that install.sh might change, and what it must not change beside it."""
        pes = self.cluster.run(MASTER, "qconf -spl && for pe in $(qconf -spl); do qconf -sp $pe; done").stdout
        return [pes, self.root(MASTER, "qconf", "-sq", "all.q"), self.root(MASTER, "qconf", "-sc")]

    def submit(self, *arguments: str) -> str:
        (self.cluster.home() / "script.py").write_text(SCRIPT)
        return self.cluster.qsub(*arguments, "-cwd", "/srv/tf_submit/tf_submit.py", "--ps", "0", "script.py")

    def tasks(self, job: str) -> list[str]:
        """What the tasks of a finished job printed."""
        self.cluster.wait(job)
        lines = self.cluster.output(job).splitlines()
        return sorted(line.partition(" | ")[2] for line in lines if "@" in line)


@pytest.fixture(scope="module")
def bare(cluster):
    """A cluster of its own, as it comes: without a parallel environment."""
    with Cluster(f"{cluster.name}-bare", hosts=2, slots=2, bare=True, venv=cluster.venv) as fresh:
        yield fresh


@pytest.fixture
def site(bare):
    """The fresh cluster; whatever a test installs has to go again without a trace."""
    site = Site(bare)
    before = site.configuration()
    yield site
    site.done("--uninstall", "--gpu-complex", "--force")
    assert site.configuration() == before


def test_from_a_fresh_qmaster_to_a_finished_job(site):
    assert site.done() == (
        "cluster: SGE 8.1.9 (Son of Grid Engine)\n"
        "add the parallel environment 'tensorflow'\n"
        "add 'tensorflow' to queue all.q\n"
    )
    tasks = site.tasks(site.submit("-pe", "tensorflow", "4"))
    assert tasks == ["worker on node1", "worker on node1", "worker on node2", "worker on node2"]


def test_running_it_twice_changes_nothing(site):
    site.done("--gpu-complex")
    before = site.configuration()
    assert site.done("--gpu-complex").endswith("\nnothing to do\n")
    assert site.install("--gpu-complex", "--dry-run").returncode == 0
    assert site.configuration() == before


def test_dry_run_changes_nothing_and_its_pe_can_be_loaded_by_hand(site):
    before = site.configuration()
    result = site.install("--dry-run")
    assert result.returncode == 3
    assert site.configuration() == before
    pe = [line for line in result.stdout.splitlines(keepends=True) if line.startswith("    ")]
    site.cluster.qconf("-Ap", "".join(pe))
    assert "would add 'tensorflow' to queue all.q" in site.install("--dry-run").stdout
    assert "would add the parallel environment" not in site.install("--dry-run").stdout


def test_a_job_gets_one_gpu_for_each_slot(site):
    site.done("--gpu-complex")
    site.root(MASTER, "qconf", "-aattr", "exechost", "complex_values", "gpu=2", "node2")
    tasks = site.tasks(site.submit("-pe", "tensorflow", "2", "-l", "gpu=1"))
    assert tasks == ["worker on node2", "worker on node2"]
    refused = site.refused("--uninstall", "--gpu-complex")
    assert 'still referenced in host "node2"' in refused
    site.root(MASTER, "qconf", "-dattr", "exechost", "complex_values", "gpu", "node2")


def test_hosts_with_a_pe_list_of_their_own(site):
    site.cluster.qconf("-Ap", fake_pe("make"))
    site.root(MASTER, "qconf", "-aattr", "queue", "pe_list", "make", "all.q@node2")
    said = site.done()
    assert "note: all.q@node2 has a pe_list of its own, without 'tensorflow'" in said
    site.root(MASTER, "qconf", "-aattr", "queue", "pe_list", "tensorflow", "all.q@node2")
    assert "note" not in site.done()
    said = site.done("--uninstall")
    assert "take 'tensorflow' out of queue all.q\ntake 'tensorflow' out of queue all.q@node2\n" in said
    site.root(MASTER, "qconf", "-purge", "queue", "pe_list", "all.q@node2")
    site.root(MASTER, "qconf", "-dp", "make")


def test_force_replaces_a_pe_and_the_kept_file_brings_it_back(site):
    site.cluster.qconf("-Ap", fake_pe("tensorflow"))
    before = site.root(MASTER, "qconf", "-sp", "tensorflow")
    said = site.done("--force")
    assert "control_slaves     TRUE" in site.root(MASTER, "qconf", "-sp", "tensorflow")
    kept = said.partition("keep the old one in ")[2].splitlines()[0]
    site.root(MASTER, "qconf", "-Mp", kept)
    assert site.root(MASTER, "qconf", "-sp", "tensorflow") == before


def test_force_replaces_a_gpu_complex_and_the_kept_file_brings_it_back(site):
    before = site.root(MASTER, "qconf", "-sc")
    other = before + "gpu gpu INT <= YES JOB 0 0\n"
    site.cluster.qconf("-Mc", other)
    site.done()
    assert "the complex 'gpu' exists and differs" in site.refused("--gpu-complex")
    said = site.done("--gpu-complex", "--force")
    kept = said.partition("keep the old one in ")[2].splitlines()[0]
    site.root(MASTER, "qconf", "-Mc", kept)
    assert "the complex 'gpu' exists and differs" in site.refused("--gpu-complex")


def test_refused_when_the_user_is_no_manager(site):
    said = site.refused(user="tfuser")
    assert 'denied: "tfuser" must be manager for this operation' in said
    assert "qconf -am tfuser" in said


def test_refused_when_the_host_is_no_admin_host(site):
    site.root(MASTER, "qconf", "-dh", "node2")
    said = site.refused(host="node2")
    assert 'denied: host "node2" is not an admin host' in said
    assert "qconf -ah node2" in said
    site.root(MASTER, "qconf", "-ah", "node2")


def test_refused_when_the_qmaster_does_not_answer(site):
    said = site.refused(env={"SGE_QMASTER_PORT": "1"})
    assert "Does the qmaster run" in said


def test_refused_when_the_queue_does_not_exist(site):
    said = site.refused("--queue", "gpu.q")
    assert said == "install.sh: there is no queue 'gpu.q'\n    Name one of these with --queue: all.q\n"


def test_refused_when_another_pe_has_the_name(site):
    site.cluster.qconf("-Ap", fake_pe("tensorflow"))
    assert "control_slaves FALSE, should be: control_slaves TRUE" in site.refused()
    assert "It is not what install.sh installed" in site.refused("--uninstall")


def test_uninstall_is_refused_while_a_job_needs_the_pe(site):
    site.done()
    job = site.submit("-h", "-pe", "tensorflow", "2")
    assert f"still referenced in job {job}" in site.refused("--uninstall")
    site.root(MASTER, "qdel", job)
    site.cluster.wait(job)
    site.done("--uninstall")


def fake_pe(name: str) -> str:
    """A PE with the values that qconf offers for a new one, as the fake qconf knows them."""
    return fake_qconf.shown(fake_qconf.template(fake_qconf.new_cluster("soge"), name))


def without(attribute: str) -> str:
    return "".join(line for line in fake_pe("tensorflow").splitlines(keepends=True) if attribute not in line)


@pytest.mark.parametrize(
    "call, text",
    [
        ("-ap tensorflow", ""),
        ("-sp tensorflow", ""),
        ("-dp tensorflow", ""),
        ("-sq gpu.q", ""),
        ("-aattr queue pe_list tensorflow all.q", ""),
        ("-dattr queue pe_list tensorflow gpu.q", ""),
        ("-Ap file", without("qsort_args")),
        ("-Ap file", fake_pe("tensorflow") + "daemon_forks_slaves FALSE\n"),
        ("-Mp file", fake_pe("tensorflow")),
        ("-Mc file", "gpu gpu RSMAP <= YES YES 0 0\n"),
    ],
)
def test_the_fake_qconf_answers_like_the_real_one(site, tmp_path, monkeypatch, capfd, call, text):
    (site.cluster.home() / "file").write_text(text)
    real = site.cluster.run(MASTER, f"EDITOR=cat qconf {call}", user="root", cwd="/home/tfuser")

    fake_qconf.save(fake_qconf.new_cluster("soge"), tmp_path / "cluster")
    monkeypatch.setenv("FAKE_CLUSTER", str(tmp_path / "cluster"))
    monkeypatch.setenv("EDITOR", "cat")
    monkeypatch.chdir(site.cluster.home())
    status = fake_qconf.main(*call.split())
    assert (status, *capfd.readouterr()) == (real.returncode, real.stdout, real.stderr)
