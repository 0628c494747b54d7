"""Prints what `output` yields for the number on the command line, and ends at once."""

import os
import random
import sys


def output(number):
    """Bytes that are hard to get through whole, in pieces."""
    random_bytes = random.Random(number)
    if number == 0:  # 200 MB of lines
        for start in range(0, 20_000_000, 100_000):
            yield b"".join(b"%09d\n" % line for line in range(start, start + 100_000))
    elif number == 1:  # 100 MB of anything, also a NUL or what looks like a frame
        for _ in range(100):
            yield random_bytes.randbytes(1_000_000)
    else:  # lines of 1 MB, the last without its end
        for letter in (b"a", b"b", b"c"):
            yield letter * 1_000_000 + b"\n"
        yield b"x" * 999_999


if __name__ == "__main__":
    for piece in output(int(sys.argv[1])):
        while piece:
            piece = piece[os.write(1, piece) :]
    os._exit(0)
