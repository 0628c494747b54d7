"""The real Grid Engine that the tests of this folder share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gridengine import STATE_ROOT, Cluster, ClusterError, UnsupportedError, wait_until
from jobs import Folder

# The Python environment for the hosts, if it isn't the one that runs pytest.
VENV = Path(os.environ.get("CLUSTER_VENV", sys.prefix))
NAME = "pytest-"


def clear_traces() -> None:
    """Remove what clusters of killed test runs have left in their state folders: their hosts are off."""
    for state in STATE_ROOT.glob(f"gridengine-{NAME}*"):
        name = state.name.partition("-")[2]
        if not Path("/proc", name[len(NAME) :].partition("-")[0]).exists():
            Cluster(name).down()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four hosts with eight slots each.  Skips where that can't be, but fails where CI is set."""
    clear_traces()
    shared = Cluster(f"{NAME}{os.getpid()}", venv=VENV)
    try:
        shared.up()
    except UnsupportedError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(f"no test cluster: {error}")
    yield shared
    shared.down()


@pytest.fixture
def folder(cluster: Cluster, request: pytest.FixtureRequest) -> Folder:
    """A new folder of the user's, named after the test."""
    return Folder(cluster, re.sub(r"\W+", "-", request.node.name))


@pytest.fixture(autouse=True)
def nothing_stays(cluster: Cluster) -> Iterator[None]:
    """No job, process or port of an ordinary user is left on any host ten seconds after a test."""
    yield
    try:
        wait_until(lambda: not cluster.leftovers(), 10, "nothing is left")
    except ClusterError:
        left = cluster.leftovers()
        cluster.clear()
        pytest.fail("\n".join(["left behind:", *left]))
