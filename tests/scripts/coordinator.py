"""Learns y = 3x with a ParameterServerStrategy: the chief hands out the work, an evaluator watches.

Workers and ps are servers that never end by themselves. The evaluator takes SIGTERM as the word that the
training is done, and looks at the last checkpoint before it ends.
"""

import json
import os
import signal
import threading

config = json.loads(os.environ["TF_CONFIG"])
trained = threading.Event()
if config["task"]["type"] == "evaluator":
    signal.signal(signal.SIGTERM, lambda *_: trained.set())

import tensorflow as tf  # noqa: E402 - takes seconds, in which SIGTERM may come

CHECKPOINTS = os.path.join(os.environ["TF_SUBMIT_JOB_DIR"], "checkpoints")


def serve(resolver):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()


def train(resolver):
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable(0.0)

    def replica_step():
        x = tf.random.uniform([32])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(weight * x - 3 * x))
        weight.assign_sub(0.3 * tape.gradient(loss, weight))

    @tf.function
    def step():
        strategy.run(replica_step)

    for _ in range(100):
        coordinator.schedule(step)
    coordinator.join()
    tf.train.Checkpoint(weight=weight).save(os.path.join(CHECKPOINTS, "model"))
    print(f"learned {weight.numpy():.1f}", flush=True)


def evaluate():
    trained.wait()
    weight = tf.Variable(0.0)
    tf.train.Checkpoint(weight=weight).restore(tf.train.latest_checkpoint(CHECKPOINTS))
    print(f"evaluated {weight.numpy():.1f}", flush=True)


resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("ps", "worker"):
    serve(resolver)
elif resolver.task_type == "evaluator":
    evaluate()
else:
    train(resolver)
