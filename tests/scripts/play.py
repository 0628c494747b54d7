"""A task without TensorFlow that plays the part which its arguments give it.

    play.py 'worker:1=sys.exit(3)' 'worker=wait()'

A part is Python; that of the task itself goes before that of its role. Without a part a ps waits to be
stopped and a worker has nothing to do.
"""

import json
import os
import signal
import subprocess  # noqa: F401 - parts use it
import sys
import time

task = json.loads(os.environ["TF_CONFIG"])["task"]
role, name = task["type"], "{type}:{index}".format(**task)


def wait():
    """For a signal that ends this process."""
    while True:
        time.sleep(600)


def keep_checkpoint():
    """Write the name of each signal that comes into a file, as a training would save its state, and end
    half a second after the first."""
    caught = []

    def note(number, _frame):
        caught.append(number)
        with open(f"checkpoint-{role}-{task['index']}", "a") as file:
            file.write(f"{signal.Signals(number).name} ")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, note)
    print("ready", flush=True)
    while not caught:
        time.sleep(0.05)
    time.sleep(0.5)


def be_stubborn():
    """Ignore SIGTERM, and have a grandchild that does the same in a session of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.system("(setsid sh -c 'trap : TERM HUP INT; while :; do sleep 0.2; done' &)")


def times(number):
    """Whether this task has been started more often than so many times."""
    with open(f"times-{role}-{task['index']}", "a+") as file:
        file.write(".")
        file.seek(0)
        return len(file.read()) > number


def crash(number):
    """Die of a signal, and say when."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    print("dies at", time.time(), flush=True)
    os.kill(os.getpid(), number)
    wait()


parts = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
part = parts.get(name) or parts.get(role) or ("wait()" if role == "ps" else "")
print("begins", flush=True)
exec(part)
