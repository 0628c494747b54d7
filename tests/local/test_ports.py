"""Ports that agents reserve: nobody else gets them, TensorFlow's server does."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tf_submit import interfaces, own_address, reserve_ports, share_port, try_port, with_port

SERVE = Path(__file__).resolve().parents[1] / "scripts" / "serve.py"
HAS_IPV6 = os.path.exists("/proc/net/if_inet6")
LOOPBACKS = [
    pytest.param(socket.AF_INET, "127.0.0.1"),
    pytest.param(
        socket.AF_INET6, "::1", marks=pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")
    ),
]


@pytest.fixture
def reserved():
    """A reserved port of the kernel's choice."""
    with reserve_ports(None, 1)[0] as reserved:
        yield reserved


def bind_error(family: int, address: str, port: int, share: bool = False) -> int:
    """The error number that a stranger gets who binds the port; 0 if it got it."""
    with socket.socket(family, socket.SOCK_STREAM) as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, share)
        try:
            stranger.bind((address, port))
        except OSError as error:
            return error.errno or -1
    return 0


@pytest.mark.parametrize(("family", "address"), LOOPBACKS)
def test_no_stranger_gets_a_reserved_port_until_the_task_starts(reserved, family, address):
    port = reserved.getsockname()[1]
    for share in (False, True):
        assert bind_error(family, address, port, share) == errno.EADDRINUSE
    assert try_port(port) is None
    reserved.close()
    assert bind_error(family, address, port) == 0


@pytest.mark.parametrize(("family", "address"), LOOPBACKS)
def test_while_the_task_starts_only_a_server_that_shares_addresses_gets_the_port(reserved, family, address):
    share_port(reserved)
    port = reserved.getsockname()[1]
    assert bind_error(family, address, port) == errno.EADDRINUSE
    assert try_port(port) is None
    assert bind_error(family, address, port, share=True) == 0


def test_tensorflow_serves_on_reserved_ports():
    addresses = ["127.0.0.1", "::1"] if HAS_IPV6 else ["127.0.0.1"]
    ports = reserve_ports(None, len(addresses))
    for port in ports:
        share_port(port)
    numbers = [port.getsockname()[1] for port in ports]
    served = [with_port(address, number) for address, number in zip(addresses, numbers)]
    server = subprocess.Popen(
        [sys.executable, SERVE, *served], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with server:
        for address, number, text in zip(addresses, numbers, served):
            assert server.stdout.readline() == f"serving {text}\n"
            socket.create_connection((address, number), 5).close()
            assert bind_error(socket.AF_INET, "127.0.0.1", number) == errno.EADDRINUSE
        server.stdin.close()
    assert server.returncode == 0
    for port in ports:
        port.close()


def test_ports_go_upward_from_the_base_past_those_that_are_taken():
    with try_port(0) as taken:
        base = taken.getsockname()[1]
        ports = reserve_ports(base, 2)
        numbers = [port.getsockname()[1] for port in ports]
        assert base < numbers[0] < numbers[1] < base + 20
        for port in ports:
            port.close()


def test_a_host_whose_name_does_not_resolve_is_known_by_an_address_of_its_own():
    own = [address for name, addresses in interfaces().items() if name != "lo" for address in addresses]
    if not own:
        pytest.skip("this machine has no network")
    assert own_address("no-such-host.invalid", None) in own
    assert own_address("localhost", None) == "localhost"
    assert own_address("localhost", "lo") == "127.0.0.1"
