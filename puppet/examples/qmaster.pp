# The qmaster of a cluster in /opt/sge: the parallel environment tensorflow in two queues, with a gpu complex.
class { 'tf_submit::qmaster':
  queues      => ['all.q', 'gpu.q'],
  gpu_complex => true,
  settings    => '/opt/sge/default/common/settings.sh',
}
