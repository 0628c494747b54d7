"""Starts TensorFlow's server on each of the addresses it is given, and serves until its stdin ends."""

import sys

import tensorflow as tf

for address in sys.argv[1:]:
    tf.distribute.Server({"ps": [address]}, "ps", 0)
    print(f"serving {address}", flush=True)
sys.stdin.read()
