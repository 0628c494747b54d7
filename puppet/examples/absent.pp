# Takes everything away again from a host that was a compute node and the qmaster.
class { 'tf_submit':
  ensure => absent,
}
include tf_submit::node
include tf_submit::qmaster
