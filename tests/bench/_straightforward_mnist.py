#!/usr/bin/env python3
"""The algorithm of the widely copied MNIST example for distributed TensorFlow, in the straightforward way.

What example.py is measured against (mnist.py, README.md): four variables, a session.run() per step that is
fed with pixels as floats and labels as one-hot rows, and that fetches the cost, a summary and the step.
Arguments as of example.py. Each worker goes through the whole training set in each of its epochs.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import example  # noqa: E402
from sample_digits import mnist  # noqa: E402

BATCH, LEARNING_RATE = 100, 0.0005


def main() -> None:
    options = example.parse_arguments(None)
    task = example.find_task(options, "")
    example.import_tensorflow()
    tf = example.tf
    server = task.start_server()
    if task.role == "ps":
        server.join()
    images, labels, test_images, test_labels = mnist.load(options.data_dir)
    images, labels = images.astype(np.float32) / 255, np.eye(10, dtype=np.float32)[labels]

    cluster = tf.train.ClusterSpec({"ps": task.ps, "worker": task.workers})
    worker = f"/job:worker/task:{task.number}"
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        x, y = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.float32, [None, 10])
        w1, w2 = tf.Variable(tf.random_normal([784, 100])), tf.Variable(tf.random_normal([100, 10]))
        b1, b2 = tf.Variable(tf.zeros([100])), tf.Variable(tf.zeros([10]))
        answer = tf.nn.softmax(tf.matmul(tf.sigmoid(tf.matmul(x, w1) + b1), w2) + b2)
        cost = tf.reduce_mean(-tf.reduce_sum(y * tf.log(answer), axis=1))
        train = tf.train.GradientDescentOptimizer(LEARNING_RATE).minimize(cost, global_step=step)
        right = tf.equal(tf.argmax(answer, 1), tf.argmax(y, 1))
        accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
        tf.summary.scalar("cost", cost)
        tf.summary.scalar("accuracy", accuracy)
        summary = tf.summary.merge_all()

    config = tf.ConfigProto(device_filters=["/job:ps", worker])  # the published one has none, and hangs
    with tf.train.MonitoredTrainingSession(server.target, task.is_chief, config=config) as session:
        began = time.monotonic()
        for epoch in range(options.epochs):
            order = np.random.permutation(len(images))
            for batch in range(len(images) // BATCH):
                chosen = order[batch * BATCH : (batch + 1) * BATCH]
                feed = {x: images[chosen], y: labels[chosen]}
                _, loss, _, now = session.run([train, cost, summary, step], feed)
                if batch % 100 == 99:
                    print(f"Step: {now},  Epoch: {epoch + 1},  Cost: {loss:.4f}", flush=True)
        print(f"Total Time: {time.monotonic() - began:.2f}s", flush=True)
        feed = {x: test_images.astype(np.float32) / 255, y: np.eye(10, dtype=np.float32)[test_labels]}
        print(f"Test-Accuracy: {session.run(accuracy, feed):.4f}", flush=True)


if __name__ == "__main__":
    main()
