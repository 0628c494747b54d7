"""A task of two processes with two threads each: prints "ready", and ends when there is a file `end`."""

import os
import threading
import time


def add_thread() -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


ready, child_ready = os.pipe()
parent_gone, parent = os.pipe()
child = os.fork() == 0
add_thread()
if child:
    os.close(parent)
    os.write(child_ready, b".")
    os.read(parent_gone, 1)
else:
    os.read(ready, 1)
    print("ready", flush=True)
    while not os.path.exists("end"):
        time.sleep(0.2)
