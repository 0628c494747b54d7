#!/usr/bin/env python3
"""A real Grid Engine of N hosts on one machine, each host a set of Linux namespaces.

    sudo python3 tests/cluster/gridengine.py up --hosts 4       # install what is missing, start everything
    sudo python3 tests/cluster/gridengine.py run node1 qhost    # a command on a host, as an ordinary user
    sudo python3 tests/cluster/gridengine.py link node2 down    # pull the network cable of a host
    sudo python3 tests/cluster/gridengine.py down               # and nothing of it is left

The same from Python:

    with Cluster(hosts=2) as cluster:
        job = cluster.qsub("-pe", "tensorflow", "2", "-cwd", "job.sh")
        records = cluster.wait(job)

What a cluster consists of:

* hosts `node1` ... `nodeN` run sge_execd and jobs; the host `master` runs sge_qmaster and is at the
  same time the switch: its two bridges, called eth0 and eth1, are the cluster's two networks, and the
  cable of each host ends there.  Neither network has a way out, so every cluster can use the same addresses.
* Each host has its own network, host name, processes, IPC and mounts.  The first process of a host is
  its power switch: the kernel ends all others with it, and mounts and networks go with the last of them.
* The machine's root file system is read-only on the hosts.  What they may write lies in the folder
  STATE_ROOT/gridengine-NAME: /home (shared by all hosts, as by NFS), a copy of /etc, the Grid Engine cell
  and each host's spool folder; /tmp and /run are each host's own.
* The checkout that this file belongs to is at /srv/tf_submit (read-only), a Python environment at /srv/venv.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

CHECKOUT = Path(__file__).resolve().parents[2]
STATE_ROOT = Path("/var/tmp")
PACKAGES = ["iproute2", "gridengine-master", "gridengine-exec", "gridengine-client"]

MASTER = "master"
NETWORKS = ("10.77.0", "10.77.1")  # host names resolve to addresses of the first
USERS = {"tfuser": 20001, "tfother": 20002}  # ordinary users: name and uid, which is also the gid
USER = "tfuser"
USER_PATH = "/srv/venv/bin:/usr/local/bin:/usr/bin:/bin"

PE = """\
pe_name            tensorflow
slots              9999
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    $round_robin
control_slaves     TRUE
job_is_first_task  FALSE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
"""
# Jobs start and end within a second or so, and accounting is on disk when a job is gone from qstat.
SCHEDULER = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
GLOBAL_CONFIG = {
    "loglevel": "log_info",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:01 accounting_flush_time=00:00:00"
    " joblog=false sharelog=00:00:00",
}

# The first process of a host.  It says `ready` once all is mounted.
BOOT = r"""
set -eu
host=$1
read -r pid _ </proc/self/stat  # of the machine's /proc, which is still mounted
echo "$pid" >"$STATE/$host/pid"

hostname "$host"
mount -t proc proc /proc
mount -t sysfs sysfs /sys

mount -t tmpfs tmpfs /srv
mkdir /srv/tf_submit /srv/venv
mount --bind "$CHECKOUT" /srv/tf_submit
mount -o remount,bind,ro /srv/tf_submit
mount --bind "$VENV" /srv/venv
mount -o remount,bind,ro /srv/venv

mount --bind "$STATE/etc" /etc
mount --bind "$STATE/$host/hostname" /etc/hostname
mount --bind "$STATE/home" /home
mount --bind "$STATE/cell" /var/lib/gridengine
mount --bind "$STATE/$host/spool" /var/spool/gridengine
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -o remount,bind,ro /

echo ready
exec >/dev/null
while :; do sleep 1d & wait $!; done  # bash, as process 1, collects orphans
"""


class ClusterError(Exception):
    """The cluster can't do what was asked; the text says why."""


@dataclasses.dataclass(frozen=True)
class Process:
    """A process on a host; `machine_pid` is its id outside, for os.kill."""

    host: str
    pid: int
    machine_pid: int
    user: str
    command: str


def call(*command: str | Path, stdin: str | None = None) -> str:
    """Run a command of the machine; its stdout.  Raises ClusterError with all output when it fails."""
    done = subprocess.run([str(word) for word in command], input=stdin, text=True, capture_output=True)
    return checked(done)


def checked(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode:
        raise ClusterError(
            f"{' '.join(done.args)}\nended with status {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def address(network: int, number: int) -> str:
    """Address of the number-th host (0: the master) in a network: `address(1, 2)` is "10.77.1.12"."""
    return f"{NETWORKS[network]}.{10 + number}"


def edited(text: str, values: Mapping[str, str]) -> str:
    """A configuration as qconf shows it, with other values: `edited("slots 1\n", {"slots": "8"})` is "slots 8\n"."""
    lines = (line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#"))
    return "".join(f"{key} {values.get(key, ''.join(value))}\n" for key, *value in lines)


def install() -> None:
    """Install Grid Engine's Debian packages where they are missing; no daemon of theirs is started."""
    if all(shutil.which(program) for program in ("sge_qmaster", "sge_execd", "qsub", "ip")):
        return
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")  # 101: action forbidden by policy
        policy.chmod(0o755)
    apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600")
    try:
        call(*apt, "update")
        call(*apt, "install", "--no-install-recommends", *PACKAGES)
    finally:
        if ours:
            policy.unlink(missing_ok=True)


class Cluster:
    """A Grid Engine of `hosts` execution hosts with `slots` slots each; `with` brings it up and takes it down.

    `venv` is the Python environment for the hosts, `bare` leaves out the parallel environment, and a
    `detached` cluster stays when the program that brought it up ends.
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
        self.name = name
        self.nodes = [f"node{number}" for number in range(1, hosts + 1)]
        self.slots = slots
        self.venv = venv
        self.bare = bare
        self.detached = detached
        self.state = STATE_ROOT / f"gridengine-{name}"
        self._booted: list[subprocess.Popen[str]] = []

    @classmethod
    def running(cls, name: str) -> Cluster:
        """The cluster of that name, which another program has brought up."""
        hosts = len(list((STATE_ROOT / f"gridengine-{name}").glob("node*")))
        if not hosts:
            raise ClusterError(f"there is no cluster {name}")
        return cls(name, hosts)

    def __enter__(self) -> Cluster:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    # --- up and down ---------------------------------------------------------------------------

    def up(self) -> None:
        """Bring the cluster up; when that fails nothing of it stays."""
        if self.state.exists():
            raise ClusterError(f"cluster {self.name} exists already: take it down first")
        if not self.venv.is_dir():
            raise ClusterError(f"{self.venv} is no Python environment")
        install()
        try:
            self._write_state()
            self._boot([MASTER, *self.nodes])
            self._check_python()
            self._start_qmaster()
            self._start_execds(self.nodes)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Power all hosts off and remove all that they wrote."""
        for host in [MASTER, *self.nodes]:
            self._kill(host)
        for unshare in self._booted:
            unshare.wait()
        shutil.rmtree(self.state, ignore_errors=True)

    def _write_state(self) -> None:
        """Everything that the hosts mount from the state folder."""
        self.state.mkdir(mode=0o700)
        (self.state / "boot").write_text(BOOT)
        for host in [MASTER, *self.nodes]:
            (self.state / host / "spool" / "execd").mkdir(parents=True)
            (self.state / host / "hostname").write_text(f"{host}\n")
            shutil.chown(self.state / host / "spool" / "execd", "sgeadmin", "sgeadmin")
        self._write_etc(self.state / "etc")
        self._write_cell(self.state / "cell")
        for user, uid in USERS.items():
            self.home(user).mkdir(parents=True)
            os.chown(self.home(user), uid, uid)

    def _write_etc(self, etc: Path) -> None:
        call("cp", "-a", "/etc", etc)
        hosts = "".join(f"{address(0, number)} {host}\n" for number, host in enumerate([MASTER, *self.nodes]))
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{hosts}")
        (etc / "hostname").touch()
        (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\nservices: files\n")
        (etc / "profile.d").mkdir(exist_ok=True)
        (etc / "profile.d" / "venv.sh").write_text("PATH=/srv/venv/bin:$PATH\n")
        with open(etc / "services", "a") as services:
            services.write("sge_qmaster 6444/tcp\nsge_execd 6445/tcp\n")
        with open(etc / "passwd", "a") as passwd, open(etc / "group", "a") as group:
            for user, uid in USERS.items():
                passwd.write(f"{user}:x:{uid}:{uid}::/home/{user}:/bin/bash\n")
                group.write(f"{user}:x:{uid}:\n")

    def _write_cell(self, cell: Path) -> None:
        common = cell / "default" / "common"
        common.mkdir(parents=True)
        shutil.copy("/usr/share/gridengine/default-bootstrap", common / "bootstrap")
        (common / "act_qmaster").write_text(f"{MASTER}\n")
        (common / "sge_request").write_text(f"-v PATH={USER_PATH}\n")
        for link in Path("/var/lib/gridengine").glob("*/lx-*"):
            (cell / link.parent.name).mkdir(exist_ok=True)
            (cell / link.parent.name / link.name).symlink_to(os.readlink(link))
        (cell / "util").symlink_to("/usr/share/gridengine/util")
        (cell / "qconf").mkdir()
        call("chown", "-R", "sgeadmin:sgeadmin", cell)

    # --- hosts and networks ----------------------------------------------------------------------

    def _boot(self, hosts: Sequence[str]) -> None:
        environment = {
            **os.environ,
            "STATE": str(self.state),
            "CHECKOUT": str(CHECKOUT),
            "VENV": str(self.venv),
        }
        lifeline = [] if self.detached else ["setpriv", "--pdeathsig=KILL"]
        unshare = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child"]
        booting = {}
        for host in hosts:
            with open(self.state / host / "boot.log", "w") as log:
                booting[host] = subprocess.Popen(
                    [*lifeline, *unshare, "bash", str(self.state / "boot"), host],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    cwd="/",
                    text=True,
                )
        self._booted.extend(booting.values())
        for host, process in booting.items():
            assert process.stdout is not None
            with process.stdout as stdout:
                if stdout.readline() != "ready\n":
                    raise ClusterError(f"{host} doesn't boot: {(self.state / host / 'boot.log').read_text()}")
        for host in hosts:
            self._plug(host)

    def _kill(self, host: str) -> None:
        """End all processes of a host."""
        try:
            handle = os.pidfd_open(self._pid(host))
        except (ClusterError, ProcessLookupError):
            return  # it never booted, or is off already
        if self._is_on(host):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [])  # until the last process of the host has ended
        os.close(handle)

    def _pid(self, host: str) -> int:
        """The first process of a host, as the machine knows it."""
        try:
            return int((self.state / host / "pid").read_text())
        except (FileNotFoundError, ValueError):
            raise ClusterError(f"cluster {self.name} has no host {host}") from None

    def _is_on(self, host: str) -> bool:
        with contextlib.suppress(ClusterError, FileNotFoundError):
            return str(self.state / "boot") in Path(f"/proc/{self._pid(host)}/cmdline").read_text()
        return False

    def _ip(self, host: str, *lines: str) -> None:
        """Run `ip` in the network of a host; process ids in the lines are the machine's."""
        call("nsenter", f"--net=/proc/{self._pid(host)}/ns/net", "ip", "-batch", "-", stdin="\n".join(lines))

    def _plug(self, host: str) -> None:
        """Give a host its network interfaces: the master has the bridges, a node a cable to each of them."""
        number = [MASTER, *self.nodes].index(host)
        addresses = {f"eth{network}": address(network, number) for network in range(len(NETWORKS))}
        if host == MASTER:
            self._ip(MASTER, *(f"link add {device} type bridge" for device in addresses))
        else:
            cable = f"type veth peer netns {self._pid(host)} name"
            self._ip(MASTER, *(f"link add {host}-{end} up master {end} {cable} {end}" for end in addresses))
        self._ip(host, "link set lo up", *(f"link set {device} up" for device in addresses))
        self._ip(host, *(f"address add {ip}/24 dev {device}" for device, ip in addresses.items()))

    def link(self, host: str, up: bool, network: int = 0) -> None:
        """Plug a host's cable into one of the networks, or pull it out, at the switch's end."""
        self._ip(MASTER, f"link set {host}-eth{network} {'up' if up else 'down'}")

    def power_off(self, host: str) -> None:
        """Power a host off.  Its peers hear nothing of it: the cables are cut before its processes end."""
        for network in range(len(NETWORKS)):
            self.link(host, up=False, network=network)
        self._kill(host)

    def power_on(self, host: str) -> None:
        """Boot a host that was powered off."""
        self._boot([host])
        self._start_execds([host])

    # --- Grid Engine's daemons and configuration --------------------------------------------------

    def _check_python(self) -> None:
        python = self.run(MASTER, ["/srv/venv/bin/python3", "-c", ""])
        if python.returncode:
            raise ClusterError(
                f"ordinary users can't run the Python of {self.venv}; make the environment from one that"
                f" everybody may read, such as /usr/bin/python3: {python.stderr.strip()}"
            )

    def _start_qmaster(self) -> None:
        spool = self.state / MASTER / "spool"
        for folder in ("qmaster/job_scripts", "spooldb"):
            (spool / folder).mkdir(parents=True)
        call("chown", "-R", "sgeadmin:sgeadmin", spool)
        init_cell = "/usr/share/gridengine/scripts/init_cluster"
        cell = ("/var/lib/gridengine", "default", "/var/spool/gridengine/spooldb", "sgeadmin")
        checked(self.run(MASTER, [init_cell, *cell], user="sgeadmin", cwd="/"))
        self.root(MASTER, "sge_qmaster")
        self._until(lambda: self.run(MASTER, ["qconf", "-sh"]).returncode == 0, 30, "the master answers")
        self._configure()

    def _configure(self) -> None:
        nodes = ",".join(self.nodes)
        self.root(MASTER, "qconf", "-ah", nodes)
        self.root(MASTER, "qconf", "-as", f"{MASTER},{nodes}")
        self.qconf("-Mconf", edited(self.root(MASTER, "qconf", "-sconf"), GLOBAL_CONFIG), file="global")
        self.qconf("-Msconf", edited(self.root(MASTER, "qconf", "-ssconf"), SCHEDULER))
        self.qconf("-Ahgrp", f"group_name @allhosts\nhostlist {' '.join(self.nodes)}\n")
        if not self.bare:
            self.qconf("-Ap", PE)
        queue = {
            "qname": "all.q",
            "hostlist": "@allhosts",
            "slots": str(self.slots),
            "pe_list": "NONE" if self.bare else "tensorflow",
            "load_thresholds": "NONE",  # the load is that of the whole machine
        }
        self.qconf("-Aq", edited(self.root(MASTER, "qconf", "-sq"), queue))

    def _start_execds(self, hosts: Sequence[str]) -> None:
        daemons = [subprocess.Popen(self.argv(host, ["sge_execd"], user="root")) for host in hosts]
        for host, daemon in zip(hosts, daemons):
            if daemon.wait():
                raise ClusterError(f"sge_execd on {host} ended with status {daemon.returncode}")
        self._until(lambda: self._reported(hosts), 30, f"{', '.join(hosts)} have reported to the master")

    def _reported(self, hosts: Sequence[str]) -> bool:
        """Whether the master knows the load of these hosts: "-" in qhost's columns until then."""
        rows = self.root(MASTER, "qhost", "-h", ",".join(hosts)).splitlines()
        return sum("-" not in row.split() for row in rows[3:]) == len(hosts)

    def _until(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                raise ClusterError(f"waited {timeout:g} s in vain until {what}")
            time.sleep(0.1)

    def qconf(self, option: str, text: str, file: str = "object") -> None:
        """Give qconf a file: `qconf("-Ap", "pe_name mpi\n...")`."""
        (self.state / "cell" / "qconf" / file).write_text(text)
        self.root(MASTER, "qconf", option, f"/var/lib/gridengine/qconf/{file}")

    def set(self, kind: str, name: str, **values: str) -> None:
        """Change attributes: `set("queue", "all.q", shell="/bin/csh")`, `set("pe", "tensorflow", slots="4")`."""
        for attribute, value in values.items():
            self.root(MASTER, "qconf", "-rattr", kind, attribute, value, name)

    # --- commands and jobs ------------------------------------------------------------------------

    def home(self, user: str = USER) -> Path:
        """The user's home, which all hosts share, as the machine sees it."""
        return self.state / "home" / user

    def argv(
        self,
        host: str,
        command: str | Sequence[str],
        user: str = USER,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The machine's command that runs a command, or a line for bash, on a host as that user."""
        words = ["bash", "-c", command] if isinstance(command, str) else list(command)
        folder = cwd or (f"/home/{user}" if user in USERS else "/")
        path = USER_PATH if user in USERS else f"/usr/sbin:/sbin:{USER_PATH}"
        variables = {"LANG": "C.UTF-8", "PATH": path, **(env or {})}
        return [
            *("nsenter", f"--target={self._pid(host)}", "--mount", "--uts", "--ipc", "--net", "--pid"),
            *("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"),
            "--pdeathsig=KILL",  # with nsenter, so that a timeout ends it
            *("env", f"--chdir={folder}", *(f"{name}={value}" for name, value in variables.items())),
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
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, or a line for bash, on a host; cwd is the home folder if not given."""
        argv = self.argv(host, command, user, cwd, env)
        return subprocess.run(argv, input=stdin, text=True, capture_output=True, timeout=timeout)

    def root(self, host: str, *command: str) -> str:
        """Output of a command that root runs on a host; it must succeed."""
        return checked(self.run(host, command, user="root"))

    def qsub(self, *arguments: str, host: str = "node1", user: str = USER, cwd: str | None = None) -> str:
        """Submit a job; its id."""
        return checked(self.run(host, ["qsub", "-terse", *arguments], user, cwd)).strip().split(".")[0]

    def wait(self, job: str, timeout: float = 120) -> list[dict[str, str]]:
        """Wait until the scheduler has forgotten the job; its accounting records."""
        gone = lambda: self.run(MASTER, ["qstat", "-j", job]).returncode != 0
        self._until(gone, timeout, f"job {job} has ended")
        return self.qacct(job)

    def qacct(self, job: str) -> list[dict[str, str]]:
        """Accounting records of a job, as qacct shows them: one for the script and one for each task."""
        blocks = self.run(MASTER, ["qacct", "-j", job]).stdout.split("=" * 62)[1:]
        return [dict(pairs(block)) for block in blocks]

    def output(self, job: str, stream: str = "o") -> str:
        """What a job has written to its file NAME.oID (stream "o", "e", "po" or "pe") under the home folder."""
        return "".join(path.read_text(errors="replace") for path in self.home().rglob(f"*.{stream}{job}"))

    # --- what runs ----------------------------------------------------------------------------------

    def processes(self, host: str, user: str | None = USER) -> list[Process]:
        """Processes of a user (None: of all) on a host."""
        namespace = os.readlink(f"/proc/{self._pid(host)}/ns/pid")
        users = {uid: name for name, uid in USERS.items()}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if os.readlink(folder / "ns/pid") == namespace:
                    status = dict(
                        line.split(":\t", 1) for line in (folder / "status").read_text().splitlines()
                    )
                    command = (folder / "cmdline").read_text().replace(
                        "\0", " "
                    ).strip() or f"[{status['Name']}]"
                    owner = users.get(folder.stat().st_uid, str(folder.stat().st_uid))
                    found.append(
                        Process(host, int(status["NSpid"].split()[-1]), int(folder.name), owner, command)
                    )
        return [process for process in found if user in (None, process.user)]

    def listening(self, host: str, user: str = USER) -> list[int]:
        """TCP ports on which a user listens on a host."""
        ports = set()
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{self._pid(host)}/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, _, _, _, uid, *_ = line.split()
                if state == "0A" and int(uid) == USERS[user]:
                    ports.add(int(local.rpartition(":")[2], 16))
        return sorted(ports)

    def leftovers(self) -> list[str]:
        """Jobs, processes and listening ports of ordinary users, on all hosts that are on."""
        found = self.root(MASTER, "qstat", "-u", "*").splitlines()[2:]
        for host in filter(self._is_on, self.nodes):
            for user in USERS:
                found += [
                    f"{host}: {process.pid} {process.command}" for process in self.processes(host, user)
                ]
                found += [f"{host}: port {port}" for port in self.listening(host, user)]
        return found


def pairs(block: str) -> Iterator[tuple[str, str]]:
    """Names and values of one record of qacct."""
    for line in block.splitlines():
        name, _, value = line.partition(" ")
        if name:
            yield name, " ".join(value.split())


def main() -> int:
    parser = argparse.ArgumentParser(description="A real Grid Engine on one machine.")
    parser.add_argument("--name", default="default", help="of the cluster, so that several can be up at once")
    commands = parser.add_subparsers(dest="action", required=True)

    up = commands.add_parser("up", help="bring a cluster up")
    up.add_argument("--hosts", type=int, default=4)
    up.add_argument("--slots", type=int, default=8, help="per host")
    up.add_argument("--venv", type=Path, default=CHECKOUT / ".venv", help="Python environment for the hosts")
    up.add_argument("--bare", action="store_true", help="without the parallel environment tensorflow")
    down = commands.add_parser("down", help="take it down; nothing of it stays")

    run = commands.add_parser("run", help="run a command on a host, or a line for bash")
    run.add_argument("--user", default=USER, choices=[*USERS, "root"])
    run.add_argument("host")
    run.add_argument("command", nargs=argparse.REMAINDER)

    link = commands.add_parser("link", help="pull a host's network cable, or plug it in")
    link.add_argument("--network", type=int, default=0, choices=range(len(NETWORKS)))
    link.add_argument("host")
    link.add_argument("state", choices=["up", "down"])

    for command in (up, down, run, link):
        command.add_argument("--name", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.action == "up":
        Cluster(options.name, options.hosts, options.slots, options.venv, options.bare, detached=True).up()
        return 0
    cluster = Cluster.running(options.name)
    if options.action == "down":
        cluster.down()
    if options.action == "link":
        cluster.link(options.host, options.state == "up", options.network)
    if options.action == "run":
        command = options.command[0] if len(options.command) == 1 else options.command
        return subprocess.call(cluster.argv(options.host, command, options.user))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClusterError as error:
        sys.exit(f"gridengine.py: {error}")
