"""pe/install.sh on every flavour of Grid Engine, with a fake qconf.

tests/cluster/test_install.py has the real one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import fake_qconf
import pytest

ROOT = Path(__file__).resolve().parents[2]
PE_FILE = ROOT / "pe" / "tensorflow.pe"


QCONF = f"""\
#!{sys.executable} -SE
import sys
sys.path.insert(0, {str(Path(fake_qconf.__file__).parent)!r})
import fake_qconf
sys.exit(fake_qconf.main(*sys.argv[1:]))
"""


def settings() -> dict[str, str]:
    """The attributes of pe/tensorflow.pe."""
    lines = PE_FILE.read_text().splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


class Site:
    """A fake cluster and the administrator's shell on its admin host."""

    def __init__(self, folder: Path, flavour: str) -> None:
        self.folder = folder
        self.file = folder / "cluster"
        fake_qconf.save(fake_qconf.new_cluster(flavour), self.file)
        program = folder / "bin" / "qconf"
        program.parent.mkdir()
        program.write_text(QCONF)
        program.chmod(0o755)

    def install(self, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", str(ROOT / "pe" / "install.sh"), *arguments],
            check=False,
            cwd=self.folder,
            env={"PATH": path or f"{self.folder}/bin:/usr/bin:/bin", "FAKE_CLUSTER": str(self.file)},
            text=True,
            capture_output=True,
        )

    def done(self, *arguments: str) -> str:
        """What install.sh says when all goes well."""
        result = self.install(*arguments)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    def refused(self, *arguments: str, path: str = "") -> str:
        """What install.sh says when it refuses; it must not have changed anything."""
        before = self.configuration()
        result = self.install(*arguments, path=path)
        assert result.returncode == 1
        assert self.configuration() == before
        return result.stderr

    @property
    def cluster(self) -> dict:
        return fake_qconf.load(self.file)

    def change(self, **parts: object) -> None:
        fake_qconf.save({**self.cluster, **parts}, self.file)

    def change_pe(self, **attributes: str) -> None:
        self.change(pes={"tensorflow": {**self.cluster["pes"]["tensorflow"], **attributes}})

    def configuration(self) -> dict:
        return {part: value for part, value in self.cluster.items() if part not in ("calls", "unknown")}

    def files(self, pattern: str) -> list[Path]:
        return list(self.folder.glob(pattern))


@pytest.fixture(params=fake_qconf.FLAVOURS)
def any_site(tmp_path, request):
    site = Site(tmp_path, request.param)
    yield site
    assert site.cluster["unknown"] == []


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path, "soge")
    yield site
    assert site.cluster["unknown"] == []


@pytest.fixture
def installed(site):
    site.done()
    return site


# ---- every flavour -----------------------------------------------------------------------------------------


def test_the_pe_has_the_attributes_of_the_flavour_and_our_values(any_site):
    any_site.done()
    pe = any_site.cluster["pes"]["tensorflow"]
    defaults = fake_qconf.template(any_site.cluster, "tensorflow")
    assert pe == {name: settings().get(name, default) for name, default in defaults.items()}
    assert any_site.cluster["queues"] == {"all.q": {"all.q": ["tensorflow"]}}


def test_running_it_twice_changes_nothing(any_site):
    any_site.done("--gpu-complex")
    before = any_site.configuration()
    assert "nothing to do" in any_site.done("--gpu-complex")
    assert any_site.configuration() == before
    assert any_site.install("--gpu-complex", "--dry-run").returncode == 0


def test_uninstall_leaves_the_cluster_as_it_was(any_site):
    before = any_site.configuration()
    any_site.done("--gpu-complex")
    any_site.done("--gpu-complex", "--uninstall")
    assert any_site.configuration() == before
    assert "nothing to do" in any_site.done("--gpu-complex", "--uninstall")


def test_dry_run_says_what_would_change_and_changes_nothing(any_site):
    before = any_site.configuration()
    result = any_site.install("--gpu-complex", "--dry-run")
    assert result.returncode == 3
    assert any_site.configuration() == before
    assert "would add the parallel environment 'tensorflow'\n    pe_name   " in result.stdout
    assert "would add 'tensorflow' to queue all.q" in result.stdout
    assert "would add 'gpu' to the complex list: gpu gpu " in result.stdout


@pytest.mark.parametrize(
    "flavour, entry",
    [
        ("sge", "gpu gpu INT <= YES YES 0 0"),
        ("soge", "gpu gpu INT <= YES YES 0 0"),
        ("uge", "gpu gpu RSMAP <= YES YES 0 0 NO"),
        ("age", "gpu gpu RSMAP <= YES YES 0 0 NO 0"),
        ("ocs", "gpu gpu RSMAP <= YES YES 0 0"),
    ],
)
def test_the_gpu_complex_is_merged_into_the_list(tmp_path, flavour, entry):
    site = Site(tmp_path, flavour)
    before = site.cluster["complexes"]
    site.done("--gpu-complex")
    assert site.cluster["complexes"] == {**before, "gpu": entry}


@pytest.mark.parametrize(
    "flavour, name",
    [
        ("sge", "cluster: SGE 6.2u5 (Sun Grid Engine or Open Grid Scheduler)"),
        ("soge", "cluster: SGE 8.1.9 (Son of Grid Engine)"),
        ("uge", "cluster: UGE 8.4.2 (Univa or Altair Grid Engine)"),
        ("age", "cluster: AGE 8.8.1 (Univa or Altair Grid Engine)"),
        ("ocs", "cluster: OCS 9.1.4 (Open or Gridware Cluster Scheduler)"),
    ],
)
def test_it_says_which_flavour_it_found(tmp_path, flavour, name):
    assert name in Site(tmp_path, flavour).done()


@pytest.mark.parametrize("flavour, capture", [("soge", "sge-qconf-sp.txt"), ("ocs", "ocs-qconf-sp.txt")])
def test_the_fake_qconf_knows_the_attributes_of_a_real_pe(flavour, capture):
    lines = (ROOT / "tests" / "fixtures" / capture).read_text().splitlines()
    assert fake_qconf.FLAVOURS[flavour][1] == [line.split()[0] for line in lines]


# ---- names and queues --------------------------------------------------------------------------------------


def test_another_name_and_several_queues(site):
    site.change(queues={"a.q": {"a.q": ["make"]}, "b.q": {"b.q": []}, "c.q": {"c.q": []}})
    site.done("--pe", "tf", "--queue", "a.q", "--queue", "b.q")
    assert site.cluster["pes"]["tf"]["pe_name"] == "tf"
    queues = {"a.q": {"a.q": ["make", "tf"]}, "b.q": {"b.q": ["tf"]}, "c.q": {"c.q": []}}
    assert site.cluster["queues"] == queues


def test_hosts_with_a_pe_list_of_their_own_are_named(site):
    site.change(queues={"all.q": {"all.q": [], "all.q@node1": ["make"], "all.q@@gpu": ["tensorflow"]}})
    said = site.done()
    assert "note: all.q@node1 has a pe_list of its own, without 'tensorflow'" in said
    assert "qconf -aattr queue pe_list tensorflow all.q@node1" in said
    assert "all.q@@gpu" not in said


def test_uninstall_finds_every_queue_and_host_group(installed):
    lists = {"all.q": ["tensorflow"], "all.q@node1": ["tensorflow"], "all.q@@gpu": ["make", "tensorflow"]}
    installed.change(queues={"all.q": lists, "b.q": {"b.q": ["tensorflow"]}})
    installed.done("--uninstall")
    left = {"all.q": [], "all.q@node1": [], "all.q@@gpu": ["make"]}
    assert installed.cluster["queues"] == {"all.q": left, "b.q": {"b.q": []}}
    assert installed.cluster["pes"] == {}


def test_uninstall_from_one_queue_keeps_the_pe_for_the_others(installed):
    installed.change(queues={"all.q": {"all.q": ["tensorflow"]}, "b.q": {"b.q": ["tensorflow"]}})
    said = installed.done("--uninstall", "--queue", "b.q")
    assert "the parallel environment 'tensorflow' stays, these queues have it: all.q" in said
    assert installed.cluster["queues"] == {"all.q": {"all.q": ["tensorflow"]}, "b.q": {"b.q": []}}
    installed.done("--uninstall", "--queue", "all.q")
    assert installed.cluster["pes"] == {}


# ---- refusals: nothing changes, and what to do is said -----------------------------------------------------


@pytest.mark.parametrize(
    "denial, advice",
    [
        ('denied: "joe" must be manager for this operation', "qconf -am "),
        ('denied: host "login" is not an admin host', "qconf -ah "),
        ("error: commlib error: got select error (Connection refused)", "Does the qmaster run"),
    ],
)
def test_refused_when_qconf_denies_it(site, denial, advice):
    site.change(denied=denial)
    said = site.refused()
    assert f"install.sh: qconf says: {denial}\n" in said
    assert advice in said


def test_refused_without_qconf(site):
    (site.folder / "bin" / "qconf").unlink()
    for tool in ("awk", "dirname", "mktemp", "readlink", "rm"):
        (site.folder / "bin" / tool).symlink_to(shutil.which(tool))
    said = site.refused(path=f"{site.folder}/bin")
    assert "there is no qconf in PATH" in said
    assert "settings.sh" in said


def test_refused_when_the_queue_does_not_exist(site):
    said = site.refused("--queue", "gpu.q")
    assert said == "install.sh: there is no queue 'gpu.q'\n    Name one of these with --queue: all.q\n"


def test_refused_when_there_is_no_queue(site):
    site.change(queues={})
    assert "Make one first: qconf -aq all.q" in site.refused()


def test_refused_when_another_pe_has_the_name(installed):
    installed.change_pe(control_slaves="FALSE", slots="16")
    said = installed.refused()
    assert "the parallel environment 'tensorflow' exists and differs:" in said
    assert "slots 16, should be: slots 999999\n" in said
    assert "control_slaves FALSE, should be: control_slaves TRUE\n" in said
    assert "--force" in said


def test_refused_when_another_gpu_complex_exists(site):
    other = "gpu g INT <= YES JOB 0 0"
    site.change(complexes={**site.cluster["complexes"], "gpu": other})
    said = site.refused("--gpu-complex")
    assert "gpu g INT <= YES JOB 0 0, should be: gpu gpu INT <= YES YES 0 0\n" in said
    site.done()


def test_refused_when_the_complex_list_has_unknown_columns(site):
    site.change(columns=[*fake_qconf.COLUMNS, "colour"])
    said = site.refused("--gpu-complex")
    assert "does not know these columns" in said
    assert "qconf -mc" in said


def test_uninstall_is_refused_when_the_pe_is_not_ours(installed):
    installed.change_pe(slots="16")
    assert "It is not what install.sh installed" in installed.refused("--uninstall")


def test_uninstall_is_refused_while_jobs_need_the_pe(installed):
    installed.change(jobs={"7": "tensorflow"})
    said = installed.refused("--uninstall")
    assert "still referenced in job 7" in said
    assert "qdel" in said


def test_uninstall_is_refused_while_a_host_has_gpus(site):
    site.done("--gpu-complex")
    site.change(host_resources={"node1": ["gpu"]})
    said = site.refused("--uninstall", "--gpu-complex")
    assert 'still referenced in host "node1"' in said
    assert "qconf -dattr exechost complex_values gpu HOST" in said


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["--pe"], "--pe needs a value"),
        (["--queue", ""], "--queue needs a value"),
        (["--gpu"], "unknown argument '--gpu'"),
        (["all.q"], "unknown argument 'all.q'"),
    ],
)
def test_wrong_usage(site, arguments, error):
    result = site.install(*arguments)
    assert (result.returncode, result.stderr) == (2, f"install.sh: {error}; see install.sh --help\n")
    assert site.cluster["calls"] == []


# ---- force -------------------------------------------------------------------------------------------------


def test_force_replaces_the_pe_and_keeps_the_old_one(installed):
    ours = installed.cluster["pes"]["tensorflow"]
    installed.change_pe(slots="16")
    installed.done("--force")
    assert installed.cluster["pes"]["tensorflow"] == ours
    (kept,) = installed.files("tensorflow.pe.*")
    assert fake_qconf.read_pe(installed.cluster, kept) == {**ours, "slots": "16"}


def test_force_keeps_what_the_site_set_beyond_our_values(tmp_path):
    site = Site(tmp_path, "age")
    site.done()
    site.change_pe(per_pe_task_prolog="/site/prolog", control_slaves="FALSE")
    site.done("--force")
    assert site.cluster["pes"]["tensorflow"]["per_pe_task_prolog"] == "/site/prolog"
    assert site.cluster["pes"]["tensorflow"]["control_slaves"] == "TRUE"


def test_slots_in_use_are_no_difference(tmp_path):
    site = Site(tmp_path, "age")
    site.done()
    site.change_pe(used_slots="12", bound_slots="12")
    assert "nothing to do" in site.done()


def test_force_replaces_the_gpu_complex_and_keeps_the_old_list(site):
    other = "gpu g INT <= YES JOB 0 0"
    before = {**site.cluster["complexes"], "gpu": other}
    site.change(complexes=before)
    site.done("--gpu-complex", "--force")
    assert site.cluster["complexes"] == {**before, "gpu": "gpu gpu INT <= YES YES 0 0"}
    (kept,) = site.files("complex.*")
    assert {row[0]: " ".join(row) for row in fake_qconf.rows(kept)} == before


def test_force_removes_a_pe_that_is_not_ours_and_keeps_it(installed):
    installed.change_pe(slots="16")
    installed.done("--uninstall", "--force")
    assert installed.cluster["pes"] == {}
    (kept,) = installed.files("tensorflow.pe.*")
    assert "slots              16\n" in kept.read_text()


def test_help_tells_the_defaults(site):
    said = site.done("--help")
    assert "(default: tensorflow)" in said
    assert "(default: all.q)" in said
