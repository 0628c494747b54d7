#!/usr/bin/env python3
"""A real Grid Engine of several hosts on one machine, each host a set of Linux namespaces.

    sudo python3 tests/cluster/gridengine.py up --hosts 4       # install what is missing, start everything
    sudo python3 tests/cluster/gridengine.py run node1 qhost    # a command on a host, as an ordinary user
    sudo python3 tests/cluster/gridengine.py link node2 down    # pull the network cable of a host
    sudo python3 tests/cluster/gridengine.py down               # and nothing of it is left

The same from Python; this cluster goes down at the end of the block, or when the program dies:

    with Cluster(hosts=2) as cluster:
        job = cluster.qsub("-pe", "tensorflow", "2", "-b", "y", "hostname")
        records = cluster.wait(job)

What a cluster consists of:

* The hosts `node1`, `node2`, ... run sge_execd and the jobs.  The host `master` runs sge_qmaster, and it is
  the network's switch: its bridges eth0 and eth1 are two networks, where the cables of all hosts end.
  Neither network leads out of the cluster, so all clusters can use the same addresses at once.
* Each host has its own network, host name, processes, shared memory and mounts (see namespaces(7)).
  Its first process is its power switch: when it ends, the kernel ends all others of the host, and the
  mounts and networks go with the last of them.
* The root file system of the machine is read-only on the hosts.  What they may write lies in the state
  folder /var/tmp/gridengine-NAME: /home, which all hosts share as if by NFS, a copy of /etc, Grid Engine's
  cell and spool folders.  /run, /tmp, /var/tmp and /dev/shm are each host's own.
* The checkout that this file belongs to is at /srv/tf_submit and a Python environment at /srv/venv,
  both read-only.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Callable

CHECKOUT = Path(__file__).resolve().parents[2]
STATE_ROOT = Path("/var/tmp")
PACKAGES = ("gridengine-master", "gridengine-exec", "gridengine-client", "iproute2")
UNSHARE = ("unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child")

MASTER = "master"
NETWORKS = {"eth0": "10.77.0", "eth1": "10.77.1"}  # /24; host names stand for addresses of eth0
USERS = {"tfuser": 20001, "tfother": 20002}  # ordinary users; the number is the id of user and group
USER = "tfuser"
USER_PATH = "/srv/venv/bin:/usr/local/bin:/usr/bin:/bin"

CELL = "/var/lib/gridengine"
SPOOL = "/var/spool/gridengine"
ROOT_VARIABLES = {
    "PATH": f"/usr/lib/gridengine:/usr/sbin:/sbin:{USER_PATH}",  # the programs without their slow wrappers
    "SGE_ROOT": CELL,
    "SGE_SINGLE_LINE": "1",  # qconf shows each attribute on one line
}
# Daemons don't inherit our variables, because jobs inherit theirs.  /usr/sbin has the packages' wrappers.
DAEMON = ("env", "--ignore-environment", "PATH=/usr/sbin:/sbin:/usr/bin:/bin")
QUEUE = "all.q"
# Jobs start and end within about a second; a job's accounting is on disk when qstat no longer knows the job.
SCHEDULER_CONFIG = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
GLOBAL_CONFIG = {
    "loglevel": "log_info",
    "mailer": "/bin/true",
    "reporting_params": "accounting=true reporting=false accounting_flush_time=00:00:00"
    " flush_time=00:00:01 joblog=false sharelog=00:00:00",
}

# Program of a host's first process, for bash.  It prints `ready` when everything is mounted.
BOOT = rf"""
set -eu
host=$1
read -r pid _ </proc/self/stat  # of the machine's /proc, which is still mounted here
echo "$pid" >"$STATE/$host/pid"

hostname "$host"
mount -t proc proc /proc
mount -t sysfs sysfs /sys

mount -t tmpfs tmpfs /srv
mkdir /srv/tf_submit /srv/venv
mount --bind "$CHECKOUT" /srv/tf_submit
mount --bind "$VENV" /srv/venv

mount --bind "$STATE/etc" /etc
mount --bind "$STATE/$host/hostname" /etc/hostname
mount --bind "$STATE/home" /home
mount --bind "$STATE/cell" {CELL}
mount --bind "$STATE/$host/spool" {SPOOL}
mount -t tmpfs tmpfs /run
for folder in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$folder"; done
for folder in / /srv/tf_submit /srv/venv; do mount -o remount,bind,ro "$folder"; done

echo ready
exec >/dev/null
while :; do sleep 1d & wait $!; done  # bash also collects the host's orphans
"""

# Lays device files of NVIDIA's driver, with the numbers $*, over /dev, whose own mounts are made anew.
GPUS = """
rm -rf /run/gpus && mkdir /run/gpus && cd /run/gpus
for number; do touch nvidia$number; done
mount -t overlay -o lowerdir=/run/gpus:/dev overlay /dev
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t devpts devpts /dev/pts
"""


class ClusterError(Exception):
    """The cluster can't do what was asked; the text says why."""


class UnsupportedError(ClusterError):
    """This machine, or this user, can't have a cluster."""


@dataclasses.dataclass(frozen=True)
class Process:
    """A process on a host; `machine_pid` is its id for os.kill, outside of the host."""

    host: str
    pid: int
    machine_pid: int
    user: str
    command: str


def checked(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a command.  Raises ClusterError with all that it printed when it failed."""
    if done.returncode:
        command = " ".join(map(str, done.args))
        raise ClusterError(f"status {done.returncode} of {command}\n{done.stdout}{done.stderr}")
    return done.stdout


def call(*command: str | Path, stdin: str = "") -> str:
    """Run a command of the machine; its output."""
    return checked(subprocess.run(command, input=stdin, text=True, capture_output=True))


def wait_until(condition: Callable[[], bool], timeout: float, what: str) -> None:
    """Ask four times per second; raises ClusterError when it isn't so within `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise ClusterError(f"not within {timeout:g} s: {what}")
        time.sleep(0.25)


def edited(text: str, values: Mapping[str, str]) -> str:
    r"""A configuration as qconf shows it, with other values: `edited("slots 1\n", {"slots": "8"})`."""
    lines = (line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#"))
    return "".join(f"{key} {values.get(key, ''.join(value))}\n" for key, *value in lines)


def fields(record: str) -> dict[str, str]:
    """Names and values of one record that qacct shows."""
    lines = (line.split(None, 1) for line in record.splitlines() if line.strip())
    return {name: " ".join("".join(value).split()) for name, *value in lines}


def check_machine() -> None:
    """Raises UnsupportedError where no cluster can be: for others than root, without apt or namespaces."""
    if os.geteuid() != 0:
        raise UnsupportedError("namespaces and mounts need root")
    if not shutil.which("apt-get"):
        raise UnsupportedError("Grid Engine comes from Debian's packages, and there is no apt-get")
    unshare = subprocess.run([*UNSHARE, "--mount-proc", "true"], text=True, capture_output=True)
    if unshare.returncode:
        raise UnsupportedError(f"this machine allows no namespaces: {unshare.stderr.strip()}")


def install() -> None:
    """Install the packages that are missing, without a cell for the machine itself; no daemon is started.

    On a machine with an init system the services gridengine-master, gridengine-exec and exim4 (a mail server
    that the packages require) would try to start at the next boot: disable them if you don't want that.
    """
    if all(map(shutil.which, ("sge_qmaster", "sge_execd", "qsub", "ip"))):
        return
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")  # action forbidden: see invoke-rc.d(8)
        policy.chmod(0o755)
    apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--yes", "--option=DPkg::Lock::Timeout=600")
    try:
        call("debconf-set-selections", stdin="gridengine-common shared/gridengineconfig boolean false\n")
        call(*apt, "update")
        call(*apt, "install", "--no-install-recommends", *PACKAGES)
    finally:
        if ours:
            policy.unlink(missing_ok=True)


class Hosts:
    """The hosts of a cluster: namespaces, networks, users, processes.  Cluster adds Grid Engine to them."""

    def __init__(self, name: str, count: int, venv: Path, detached: bool) -> None:
        self.name = name
        self.nodes = [f"node{number}" for number in range(1, count + 1)]
        self.hosts = [MASTER, *self.nodes]
        self.venv = venv
        self.detached = detached
        self.state = STATE_ROOT / f"gridengine-{name}"
        self._booted: list[subprocess.Popen[str]] = []

    # --- state folder: what the hosts mount of it ------------------------------------------------------

    def _write_state(self) -> None:
        self.state.mkdir(mode=0o700)
        (self.state / "boot").write_text(BOOT)
        for host in self.hosts:
            (self.state / host).mkdir()
            (self.state / host / "hostname").write_text(f"{host}\n")
        for user, uid in USERS.items():
            self.home(user).mkdir(parents=True)
            os.chown(self.home(user), uid, uid)
        self._write_etc(self.state / "etc")

    def _write_etc(self, etc: Path) -> None:
        call("cp", "--archive", "/etc", etc)
        names = "".join(f"{self._address('eth0', host)} {host}\n" for host in self.hosts)
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}")
        (etc / "hostname").touch()
        (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\nservices: files\n")
        (etc / "profile.d").mkdir(exist_ok=True)
        (etc / "profile.d" / "venv.sh").write_text("PATH=/srv/venv/bin:$PATH\n")
        with open(etc / "passwd", "a") as passwd, open(etc / "group", "a") as group:
            for user, uid in USERS.items():
                passwd.write(f"{user}:x:{uid}:{uid}::/home/{user}:/bin/bash\n")
                group.write(f"{user}:x:{uid}:\n")

    def home(self, user: str = USER) -> Path:
        """The home folder of a user, as the machine sees it."""
        return self.state / "home" / user

    def write(self, name: str, text: str, user: str = USER) -> str:
        """Write a file of the user's into the home folder, executable; its path on the hosts."""
        path = self.home(user) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        for owned in (path, *path.relative_to(self.home(user)).parents):
            os.chown(self.home(user) / owned, USERS[user], USERS[user])
        return f"/home/{user}/{name}"

    # --- power and networks ----------------------------------------------------------------------------

    def _boot(self, hosts: Sequence[str]) -> None:
        """Start hosts all at once, and connect them."""
        booting = {host: self._start(host) for host in hosts}
        self._booted += booting.values()
        for host, process in booting.items():
            assert process.stdout is not None
            with process.stdout as stdout:
                if stdout.readline() != "ready\n":
                    raise ClusterError(f"{host} doesn't boot: {(self.state / host / 'boot.log').read_text()}")
        for host in hosts:
            self._connect(host)

    def _start(self, host: str) -> subprocess.Popen[str]:
        paths = {"STATE": self.state, "CHECKOUT": CHECKOUT, "VENV": self.venv.resolve()}
        # When our thread ends, unshare is killed and takes the host with it.
        with_us = () if self.detached else ("setpriv", "--pdeathsig=KILL")
        with open(self.state / host / "boot.log", "w") as log:
            return subprocess.Popen(
                [*with_us, *UNSHARE, "bash", self.state / "boot", host],
                env={**os.environ, **{name: str(path) for name, path in paths.items()}},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd="/",
                text=True,
            )

    def _pid(self, host: str) -> int:
        """The first process of a host, as the machine knows it."""
        try:
            return int((self.state / host / "pid").read_text())
        except (FileNotFoundError, ValueError):
            raise ClusterError(f"cluster {self.name} has no host {host}") from None

    def is_on(self, host: str) -> bool:
        """Whether the host runs."""
        with contextlib.suppress(ClusterError, OSError):
            return str(self.state / "boot") in Path(f"/proc/{self._pid(host)}/cmdline").read_text()
        return False

    def _end(self, host: str) -> None:
        """End all processes of a host."""
        try:
            handle = os.pidfd_open(self._pid(host))
        except (ClusterError, ProcessLookupError):
            return  # it never booted, or is off already
        try:
            if self.is_on(host):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                if not select.select([handle], [], [], 30)[0]:  # ready when the host's last process is gone
                    raise ClusterError(f"processes of {host} don't end")
        finally:
            os.close(handle)

    def _address(self, interface: str, host: str) -> str:
        return f"{NETWORKS[interface]}.{10 + self.hosts.index(host)}"

    def _ip(self, host: str, *lines: str) -> None:
        """Run ip(8) in the network of a host; process ids in the lines are the machine's."""
        call("nsenter", f"--net=/proc/{self._pid(host)}/ns/net", "ip", "-batch", "-", stdin="\n".join(lines))

    def _connect(self, host: str) -> None:
        """Give a host its interfaces: the master has the bridges, a node a cable to each of them."""
        if host == MASTER:
            self._ip(MASTER, *(f"link add {name} type bridge" for name in NETWORKS))
        for name in NETWORKS:
            if host != MASTER:
                far_end = f"name {name} netns {self._pid(host)}"
                self._ip(MASTER, f"link add {host}-{name} up master {name} type veth peer {far_end}")
            self._ip(host, f"address add {self._address(name, host)}/24 dev {name}", f"link set {name} up")
        self._ip(host, "link set lo up")

    def link(self, host: str, up: bool, network: str = "eth0") -> None:
        """Plug a node's cable into a network's switch, or pull it out."""
        self._ip(MASTER, f"link set {host}-{network} {'up' if up else 'down'}")

    def power_off(self, host: str) -> None:
        """Power a node off.  Its peers hear nothing of that: the cables go before its processes end."""
        self._ip(MASTER, *(f"link delete {host}-{network}" for network in NETWORKS))
        self._end(host)

    @contextlib.contextmanager
    def gpus(self, host: str, *numbers: int) -> Iterator[None]:
        """In a `with` block the node has device files /dev/nvidiaN; there is nothing behind them."""
        self.root(host, "bash", "-ec", GPUS, "bash", *map(str, numbers))
        try:
            yield
        finally:
            self.root(host, "umount", "--recursive", "--lazy", "/dev")

    # --- commands and processes ------------------------------------------------------------------------

    def argv(
        self,
        host: str,
        command: str | Sequence[str],
        user: str = USER,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The command for the machine that runs a command on a host; see `run`."""
        words = ["bash", "-c", command] if isinstance(command, str) else command
        ordinary = user in USERS
        variables = {"PATH": USER_PATH} if ordinary else ROOT_VARIABLES
        variables = {"LANG": "C.UTF-8", **variables, **(env or {})}
        return [
            *("nsenter", f"--target={self._pid(host)}", "--mount", "--uts", "--ipc", "--net", "--pid"),
            *("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"),
            "--pdeathsig=KILL",  # the command ends when nsenter does
            *("env", f"--chdir={cwd or (f'/home/{user}' if ordinary else '/')}"),
            *(f"{name}={value}" for name, value in variables.items()),
            *words,
        ]

    def run(
        self,
        host: str,
        command: str | Sequence[str],
        user: str = USER,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout: float = 180,  # seconds: a qmaster that has just lost a host may be deaf for a minute
    ) -> subprocess.CompletedProcess[str]:
        """Run a command (a sequence), or a line for bash (a string), on a host.

        An ordinary user starts in the home folder, root in /.  Raises subprocess.TimeoutExpired.
        """
        argv = self.argv(host, command, user, cwd, env)
        return subprocess.run(argv, input=stdin, text=True, capture_output=True, timeout=timeout)

    def root(self, host: str, *command: str) -> str:
        """Output of a command that root runs on a host; it must succeed."""
        return checked(self.run(host, command, user="root"))

    def processes(self, host: str, user: str | None = USER) -> list[Process]:
        """The processes of a user (None: of all users) on a host."""
        namespace = os.readlink(f"/proc/{self._pid(host)}/ns/pid")
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is hidden from us
                if os.readlink(folder / "ns/pid") == namespace:
                    found.append(process_in(folder, host))
        return [process for process in found if user in (None, process.user)]

    def listening(self, host: str, user: str = USER) -> list[int]:
        """TCP ports on which a user listens on a host; see proc_net(5)."""
        ports = set()
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{self._pid(host)}/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, _, _, _, uid, *_ = line.split()
                if state == "0A" and int(uid) == USERS[user]:
                    ports.add(int(local.rpartition(":")[2], 16))
        return sorted(ports)


def process_in(folder: Path, host: str) -> Process:
    """The process of a folder of the machine's /proc."""
    lines = (folder / "status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    command = (folder / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
    uid = int(status["Uid"].split()[0])
    return Process(
        host=host,
        pid=int(status["NSpid"].split()[-1]),
        machine_pid=int(folder.name),
        user=next((user for user in USERS if USERS[user] == uid), str(uid)),
        command=command or f"[{status['Name'].strip()}]",
    )


class Cluster(Hosts):
    """A Grid Engine whose `hosts` execution hosts have `slots` slots each; `with` brings it up and down.

    `venv` is the Python environment for the hosts; a `bare` cluster has not got the parallel
    environment of pe/; a `detached` one stays when the program that brought it up ends.
    """

    def __init__(
        self,
        name: str = "default",
        hosts: int = 4,
        slots: int = 8,
        venv: Path = CHECKOUT / ".venv",
        bare: bool = False,
        detached: bool = False,
    ) -> None:
        super().__init__(name, hosts, venv, detached)
        self.slots = slots
        self.bare = bare

    @classmethod
    def find(cls, name: str) -> Cluster:
        """The cluster of that name, which another program has brought up."""
        cluster = cls(name, hosts=len(list((STATE_ROOT / f"gridengine-{name}").glob("node*"))))
        if not cluster.state.exists():
            others = sorted(path.name.partition("-")[2] for path in STATE_ROOT.glob("gridengine-*"))
            raise ClusterError(f"there is no cluster {name}; there are: {', '.join(others) or 'none'}")
        return cluster

    def __enter__(self) -> Cluster:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    # --- up and down -----------------------------------------------------------------------------------

    def up(self) -> None:
        """Bring the cluster up; if that fails nothing of it stays.  Raises UnsupportedError, ClusterError."""
        check_machine()
        if self.state.exists():
            raise ClusterError(f"there is a cluster {self.name} already: take it down first")
        if not (self.venv / "bin" / "python3").exists():
            raise ClusterError(
                f"no Python environment at {self.venv}: `make run` creates one, or name another"
            )
        install()
        try:
            self._write_state()
            self._boot(self.hosts)
            self._check_python()
            self._start_qmaster()
            self._configure()
            self._start_execds(self.nodes)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Power all hosts off and remove all that they wrote."""
        for host in self.hosts:
            self._end(host)
        for unshare in self._booted:
            unshare.wait()
        if self.state.exists():
            shutil.rmtree(self.state)

    def power_on(self, host: str) -> None:
        """Boot a node that was powered off."""
        self._boot([host])
        self._start_execds([host])

    def _write_state(self) -> None:
        super()._write_state()
        with open(self.state / "etc" / "services", "a") as services:
            services.write("sge_qmaster 6444/tcp\nsge_execd 6445/tcp\n")
        for host in self.hosts:
            for folder in ("execd", "qmaster/job_scripts", "spooldb"):
                (self.state / host / "spool" / folder).mkdir(parents=True)
            call("chown", "-R", "sgeadmin:sgeadmin", self.state / host / "spool")
        self._write_cell(self.state / "cell")

    def _write_cell(self, cell: Path) -> None:
        """What the packages install at CELL, with an empty cell."""
        shutil.copytree(CELL, cell, symlinks=True, ignore=shutil.ignore_patterns("default"))
        common = cell / "default" / "common"
        common.mkdir(parents=True)
        shutil.copy("/usr/share/gridengine/default-bootstrap", common / "bootstrap")
        (common / "act_qmaster").write_text(f"{MASTER}\n")
        (common / "sge_request").write_text(f"-v PATH={USER_PATH}\n")
        (cell / "qconf").mkdir()
        call("chown", "-R", "sgeadmin:sgeadmin", cell)

    def _check_python(self) -> None:
        python = self.run(MASTER, ["/srv/venv/bin/python3", "-c", ""])
        if python.returncode:
            raise ClusterError(
                f"ordinary users can't run {self.venv}/bin/python3 on the hosts; create the environment with"
                f" a Python that everybody can read, such as /usr/bin/python3: {python.stderr.strip()}"
            )

    def _start_qmaster(self) -> None:
        """Initialize the cell as the package does when it is installed, and start sge_qmaster."""
        init = "/usr/share/gridengine/scripts/init_cluster"
        done = self.run(MASTER, [init, CELL, "default", f"{SPOOL}/spooldb", "sgeadmin"], user="sgeadmin")
        if done.returncode:  # a segmentation fault in Ubuntu 22.04 and 24.04
            raise UnsupportedError(
                f"this system's Grid Engine is broken (Debian's works): {done.stderr.strip()}"
            )
        self.root(MASTER, *DAEMON, "sge_qmaster")
        wait_until(lambda: self.run(MASTER, ["qconf", "-sh"], "root").returncode == 0, 60, "qmaster answers")

    def _configure(self) -> None:
        """Hosts, scheduler, parallel environment and queue, as an administrator would define them."""
        nodes = ",".join(self.nodes)
        self.root(MASTER, "qconf", "-ah", nodes)
        self.root(MASTER, "qconf", "-as", f"{MASTER},{nodes}")
        self.qconf("-Mconf", edited(self.root(MASTER, "qconf", "-sconf"), GLOBAL_CONFIG), file="global")
        self.qconf("-Msconf", edited(self.root(MASTER, "qconf", "-ssconf"), SCHEDULER_CONFIG))
        self.qconf("-Ahgrp", f"group_name @allhosts\nhostlist {' '.join(self.nodes)}\n")
        queue = {
            "qname": QUEUE,
            "hostlist": "@allhosts",
            "slots": str(self.slots),
            "pe_list": "NONE",
            "load_thresholds": "NONE",  # a host's load is that of the whole machine
        }
        self.qconf("-Aq", edited(self.root(MASTER, "qconf", "-sq"), queue))
        if not self.bare:
            self.root(MASTER, "/srv/tf_submit/pe/install.sh", "--queue", QUEUE)

    def _start_execds(self, nodes: Sequence[str]) -> None:
        daemons = [subprocess.Popen(self.argv(node, [*DAEMON, "sge_execd"], user="root")) for node in nodes]
        for node, daemon in zip(nodes, daemons):
            if daemon.wait():
                raise ClusterError(f"sge_execd on {node} ended with status {daemon.returncode}")
        wait_until(lambda: self._loads_known(nodes), 60, f"{', '.join(nodes)} have reported to the qmaster")

    def _loads_known(self, nodes: Sequence[str]) -> bool:
        """Whether the nodes have sent a load report: until then qhost shows "-" for each value."""
        rows = self.root(MASTER, "qhost", "-h", ",".join(nodes)).splitlines()
        return sum(row.split()[0] in nodes and row.split()[6] != "-" for row in rows) == len(nodes)

    # --- administration --------------------------------------------------------------------------------

    def qconf(self, option: str, text: str, file: str = "object") -> None:
        """Give qconf a file with this text: `qconf("-Ap", "pe_name mpi ...")`."""
        (self.state / "cell" / "qconf" / file).write_text(text)
        self.root(MASTER, "qconf", option, f"{CELL}/qconf/{file}")

    def set(self, kind: str, name: str, **values: str) -> None:
        """Replace attributes: `set("queue", "all.q", shell="/bin/csh")`, `set("pe", "mpi", slots="4")`."""
        for attribute, value in values.items():
            self.root(MASTER, "qconf", "-rattr", kind, attribute, value, name)

    @contextlib.contextmanager
    def changed(self, kind: str, name: str, **values: str) -> Iterator[None]:
        """`set`, until the end of a `with` block."""
        show = {"queue": "-sq", "pe": "-sp"}[kind]
        before = fields(self.root(MASTER, "qconf", show, name))
        self.set(kind, name, **values)
        try:
            yield
        finally:
            self.set(kind, name, **{attribute: before[attribute] for attribute in values})

    def messages(self, host: str) -> str:
        """What the host's daemon has logged."""
        folder = "qmaster" if host == MASTER else f"execd/{host}"
        return (self.state / host / "spool" / folder / "messages").read_text()

    # --- jobs ------------------------------------------------------------------------------------------

    def qsub(self, *arguments: str, host: str = "node1", user: str = USER, cwd: str | None = None) -> str:
        """Submit a job; its id."""
        return checked(self.run(host, ["qsub", "-terse", *arguments], user, cwd)).strip().partition(".")[0]

    def wait(self, job: str, timeout: float = 120) -> list[dict[str, str]]:
        """Wait until a job has left the cluster; its accounting records, see `qacct`."""
        wait_until(lambda: not self._has(job), timeout, f"job {job} has ended")
        return self.qacct(job)

    def _has(self, job: str) -> bool:
        """Whether a job waits or runs, or still counts as running."""
        return "do not exist" not in self.run(MASTER, ["qstat", "-j", job], "root").stderr

    def qacct(self, job: str) -> list[dict[str, str]]:
        """The fields of a job's accounting records: one for each task as it ended, then the job script's.

        There is none if the job never started.
        """
        records = self.run(MASTER, ["qacct", "-j", job], "root").stdout.split("=" * 62)
        return [fields(record) for record in records[1:]]

    def output(self, job: str, stream: str = "o") -> str:
        """What a job has written to its file NAME.oID, or .eID, .poID, .peID, anywhere in the home folder."""
        return "".join(path.read_text(errors="replace") for path in self.home().rglob(f"*.{stream}{job}"))

    def leftovers(self) -> list[str]:
        """Jobs, processes and listening ports of ordinary users on all hosts that are on."""
        found = self.root(MASTER, "qstat", "-u", "*").splitlines()[2:]
        for host in filter(self.is_on, self.hosts):
            found += [f"{host}: {left.pid} {left.command}" for left in self._users_processes(host)]
            found += [
                f"{host}: port {port} of {user}" for user in USERS for port in self.listening(host, user)
            ]
        return found

    def _users_processes(self, host: str) -> list[Process]:
        return [process for process in self.processes(host, None) if process.user in USERS]

    def clear(self) -> None:
        """Delete all jobs and end all processes of ordinary users."""
        self.run(MASTER, ["qdel", "-f", "-u", "*"], "root")
        for host in filter(self.is_on, self.hosts):
            for process in self._users_processes(host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.machine_pid, signal.SIGKILL)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A real Grid Engine on one machine, for root.")
    commands = parser.add_subparsers(dest="action", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--name", default="default", help="of the cluster: several can be up at once")

    up = commands.add_parser("up", parents=[common], help="bring a cluster up")
    up.add_argument("--hosts", type=int, default=4)
    up.add_argument("--slots", type=int, default=8, help="per host")
    up.add_argument("--venv", type=Path, default=CHECKOUT / ".venv", help="Python environment for the hosts")
    up.add_argument("--bare", action="store_true", help="without the parallel environment of pe/")

    commands.add_parser("down", parents=[common], help="take a cluster down; nothing of it stays")

    run = commands.add_parser("run", parents=[common], help="run a command on a host")
    run.add_argument("--user", default=USER, choices=[*USERS, "root"])
    run.add_argument("host")
    run.add_argument("command", nargs="+", help="one word: a line for bash")
    run.add_argument("arguments", nargs=argparse.REMAINDER)

    link = commands.add_parser("link", parents=[common], help="pull a node's cable, or plug it in")
    link.add_argument("--network", default="eth0", choices=NETWORKS)
    link.add_argument("host")
    link.add_argument("state", choices=["up", "down"])
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    options = parse(argv)
    if options.action == "up":
        Cluster(options.name, options.hosts, options.slots, options.venv, options.bare, detached=True).up()
        return
    cluster = Cluster.find(options.name)
    if options.action == "down":
        cluster.down()
    elif options.action == "link":
        cluster.link(options.host, options.state == "up", options.network)
    else:
        words = options.command + options.arguments
        argv = cluster.argv(options.host, words[0] if len(words) == 1 else words, options.user)
        os.execvp(argv[0], argv)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ClusterError as error:
        sys.exit(f"gridengine.py: {error}")
