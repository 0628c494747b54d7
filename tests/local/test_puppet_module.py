"""The Puppet module as its tools see it; tests/cluster/test_puppet.py applies it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
MODULE = CHECKOUT / "puppet"


def call(*command: str | Path, cwd: Path = MODULE) -> str:
    """What a tool prints; the test is skipped where it is not installed, except in CI."""
    if not (shutil.which(str(command[0])) or os.environ.get("CI")):
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_all_manifests_parse() -> None:
    assert call("puppet", "parser", "validate", "--strict=error", ".") == ""


def test_puppet_lint_has_no_warning(tmp_path: Path) -> None:
    named = tmp_path / "tf_submit"  # puppet-lint takes the folder's name for the module's
    named.symlink_to(MODULE)
    assert call("puppet-lint", "--fail-on-warnings", named) == ""


def test_metadata_are_accepted() -> None:
    call("metadata-json-lint", "--strict-dependencies", "--strict-puppet-version", "metadata.json")


def test_the_module_has_the_version_of_the_project() -> None:
    version = re.search(r'^__version__ = "(.+)"$', (CHECKOUT / "tf_submit.py").read_text(), re.MULTILINE)
    assert version and json.loads((MODULE / "metadata.json").read_text())["version"] == version[1]


def test_reference_is_current(tmp_path: Path) -> None:
    shutil.copytree(MODULE / "manifests", tmp_path / "manifests")
    shutil.copytree(MODULE / "types", tmp_path / "types")
    call("puppet", "strings", "generate", "--format", "markdown", "--out", "REFERENCE.md", cwd=tmp_path)
    current = (tmp_path / "REFERENCE.md").read_text() == (MODULE / "REFERENCE.md").read_text()
    assert current, "write it again with Debian 12's puppet-strings, as puppet/README.md says"


def test_specs_pass_for_every_operating_system() -> None:
    call("rspec")


def test_every_file_that_the_manifests_name_is_there() -> None:
    """files/ holds links into the checkout: none may dangle, and none may lie there unused."""
    manifests = "".join(path.read_text() for path in MODULE.glob("manifests/*.pp"))
    for link in (MODULE / "files").iterdir():
        assert link.resolve() == CHECKOUT / link.name and link.exists()
        assert link.name in manifests
