"""Learns y = 3x as the old tutorials do: flags tell the cluster, a session runs the graph, the ps joins."""

import argparse

import tensorflow.compat.v1 as tf

parser = argparse.ArgumentParser()
for flag in ("--ps_hosts", "--worker_hosts", "--job_name"):
    parser.add_argument(flag, required=True)
parser.add_argument("--task_index", type=int, required=True)
FLAGS = parser.parse_args()

tf.disable_eager_execution()
cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
server = tf.train.Server(cluster, FLAGS.job_name, FLAGS.task_index)
if FLAGS.job_name == "ps":
    server.join()

worker = f"/job:worker/task:{FLAGS.task_index}"
with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    x = tf.random.uniform([32])
    loss = tf.reduce_mean(tf.square(weight * x - 3 * x))
    train = tf.train.GradientDescentOptimizer(0.3).minimize(loss, tf.train.get_or_create_global_step())

supervisor = tf.train.Supervisor(is_chief=FLAGS.task_index == 0, recovery_wait_secs=1)
config = tf.ConfigProto(device_filters=["/job:ps", worker])
session = supervisor.prepare_or_wait_for_session(server.target, config)
for _ in range(100):
    _, learned = session.run([train, weight])
print(f"learned {learned:.1f}")
