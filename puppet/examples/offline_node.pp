# A compute node without internet. The wheels were collected once, on a machine of the same kind, with
#   pip download --dest /shared/wheels tensorflow-cpu==2.21.0 psutil==7.2.2
class { 'tf_submit::node':
  wheels => '/shared/wheels',
}
