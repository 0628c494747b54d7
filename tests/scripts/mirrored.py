"""Learns y = 3x with a MultiWorkerMirroredStrategy and a loop of its own: no ps, all workers in step."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(0.0)


def replica_step():
    x = tf.random.uniform([32])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(weight * x - 3 * x))
    gradient = tf.distribute.get_replica_context().all_reduce("mean", tape.gradient(loss, weight))
    weight.assign_sub(0.3 * gradient)


@tf.function
def step():
    strategy.run(replica_step)


for _ in range(50):
    step()
print(f"learned {weight.numpy():.1f} on {strategy.num_replicas_in_sync} workers", flush=True)
