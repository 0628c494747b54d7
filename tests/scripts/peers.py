"""A light stand-in for TensorFlow's server: takes its port as that does, and talks to all other tasks.

    peers.py BYTES SECONDS    each task gets so many bytes from every other one, which it finds in this time

A worker ends once it has reached all others and they have reached it; a ps goes on until it is stopped.
A task of another job in the place of one of its own is an error.
"""

import json
import os
import socket
import sys
import threading
import time

SIZE, SECONDS = map(int, sys.argv[1:3])

config = json.loads(os.environ["TF_CONFIG"])
me = config["task"]["type"], config["task"]["index"]
addresses = {
    (role, index): address for role, tasks in config["cluster"].items() for index, address in enumerate(tasks)
}
visitors = set()


def introduction(task):
    """What a task of this job says first, padded to SIZE bytes."""
    return json.dumps([os.environ.get("JOB_ID", ""), *task]).ljust(SIZE).encode()


def receive(connection):
    """All bytes until the other end has no more."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def serve(server):
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(introduction(me))
            connection.shutdown(socket.SHUT_WR)
            visitors.add(receive(connection))


def visit(task, until):
    """Connect to a task as soon as it listens; check that it is the right one."""
    host, _, port = addresses[task].rpartition(":")
    while True:
        try:
            connection = socket.create_connection((host.strip("[]"), int(port)), 2)
            break
        except OSError as error:
            if time.monotonic() > until:
                sys.exit(f"{task[0]}:{task[1]} at {addresses[task]} cannot be reached: {error}")
            time.sleep(0.1)
    with connection:
        connection.settimeout(None)
        found = receive(connection)
        if found != introduction(task):
            sys.exit(f"{addresses[task]} is not {task} but {found[:100]!r}")
        connection.sendall(b"%s %d" % (me[0].encode(), me[1]))


server = socket.socket(socket.AF_INET6)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("::", int(addresses[me].rpartition(":")[2])))
server.listen(100)
threading.Thread(target=serve, args=(server,), daemon=True).start()

until = time.monotonic() + SECONDS
others = [task for task in addresses if task != me]
for task in others:
    visit(task, until)
print(f"reached {len(others)} tasks", flush=True)
while me[0] == "ps" or (len(visitors) < len(others) and time.monotonic() < until):
    time.sleep(0.05)
missing = len(others) - len(visitors)
sys.exit(f"{missing} tasks did not come" if missing else 0)
