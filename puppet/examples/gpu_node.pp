# A compute node with GPUs: pip brings the CUDA libraries, the driver must be there.
class { 'tf_submit::node':
  tensorflow => 'tensorflow[and-cuda]',
}
