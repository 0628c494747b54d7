# @summary A compute node: a Python environment with TensorFlow and psutil, and the scripts
#
# The environment is built with the `venv` of the operating system's Python and filled by pip with exact
# versions. Every run compares what is installed, dependencies included, with what is asked for, without
# any network, and installs only where they differ. An environment that cannot be mended (its Python has
# changed with the operating system, or it holds the other build of TensorFlow) is built anew. Its command
# `tf_submit` runs tf_submit.py with its Python.
#
# @example The defaults: TensorFlow for CPUs in /opt/tf_submit/venv
#   include tf_submit::node
#
# @example A node with GPUs; pip brings the CUDA libraries along
#   class { 'tf_submit::node':
#     tensorflow => 'tensorflow[and-cuda]',
#   }
#
# @example A node without internet, with wheels on a shared folder
#   class { 'tf_submit::node':
#     wheels => '/shared/wheels',
#   }
#
# @param python
#   The Python that the environment is built with. The default depends on the operating system.
# @param python_packages
#   The operating system's packages that bring this Python and its venv module. The default depends on the
#   operating system; an empty list leaves them to others.
# @param venv
#   The folder of the environment. Its parent must exist. A folder that exists and is no Python environment
#   is neither filled nor removed.
# @param tensorflow
#   The build of TensorFlow: `tensorflow-cpu`, `tensorflow`, or `tensorflow[and-cuda]`, which has pip
#   install the CUDA libraries too.
# @param tensorflow_version
#   Its exact version, 2.16 or later.
# @param psutil_version
#   The exact version of psutil, 5.9 or later.
# @param packages
#   Further Python packages and their exact versions, such as `{ 'tf_keras' => '2.21.0' }`. Also the place
#   to pin what TensorFlow depends on.
# @param index_url
#   A package index instead of pip's own. Where `wheels` is set, it is asked only if this is set too.
#   Proxies and certificates belong in /etc/pip.conf.
# @param wheels
#   A folder, or the address of a page, with wheels. Without `index_url` nothing else is asked, so that a
#   node needs no internet.
class tf_submit::node (
  Tf_submit::Path $python,
  Array[String[1]] $python_packages,
  Tf_submit::Path $venv = '/opt/tf_submit/venv',
  Enum['tensorflow-cpu', 'tensorflow', 'tensorflow[and-cuda]'] $tensorflow = 'tensorflow-cpu',
  Tf_submit::Version $tensorflow_version = '2.21.0',
  Tf_submit::Version $psutil_version = '7.2.2',
  Hash[String[1], Tf_submit::Version] $packages = {},
  Optional[Tf_submit::Index] $index_url = undef,
  Optional[Variant[Tf_submit::Path, Tf_submit::Index]] $wheels = undef,
) {
  contain tf_submit

  if $tf_submit::ensure == 'absent' {
    exec { "remove ${venv}":
      command => "rm -r ${venv}",
      onlyif  => "test -f ${venv}/pyvenv.cfg",
      path    => ['/usr/bin', '/bin'],
      before  => Class['tf_submit'],
    }
  } else {
    $requirements = "${venv}/requirements.txt"
    $versions = { $tensorflow => $tensorflow_version, 'psutil' => $psutil_version } + $packages
    $pins = $versions.map |$package, $version| { "${package}==${version}\n" }
    $venv_python = "${venv}/bin/python"

    $same_python = "test \"$(${venv_python} -V)\" = \"$(${python} -V)\""
    $other_build = $tensorflow ? { 'tensorflow-cpu' => 'tensorflow', default => 'tensorflow-cpu' }
    $fit = "${same_python} && ${venv_python} -m pip --version && ! ${venv_python} -m pip show ${other_build}"

    # With neither index nor settings pip can install nothing: it succeeds where nothing is missing.
    $pip_offline = "PIP_CONFIG_FILE=/dev/null ${venv_python} -m pip install --isolated --no-index"
    $complete = "test -x ${venv_python} && ${pip_offline} --requirement ${requirements}"

    $sources = [
      $index_url.then |$url| { "PIP_INDEX_URL=${url}" },
      $wheels.then |$place| { "PIP_FIND_LINKS=${place}" },
      $index_url ? { undef => $wheels.then |$place| { 'PIP_NO_INDEX=1' }, default => undef },
    ].filter |$setting| { $setting =~ NotUndef }

    package { $python_packages:
      ensure => installed,
    }

    exec {
      default:
        path     => ['/usr/bin', '/bin'],
        provider => shell,
        umask    => '0022',
        timeout  => 1800,
        ;
      "discard ${venv}":
        command => "rm -r ${venv}",
        onlyif  => "test -f ${venv}/pyvenv.cfg",
        unless  => $fit,
        require => Package[$python_packages],
        ;
      "create ${venv}":
        # mkdir, so that a folder of somebody else is refused
        command => "mkdir ${venv} && ${python} -m venv ${venv}",
        creates => "${venv}/pyvenv.cfg",
        require => [Class['tf_submit'], Exec["discard ${venv}"]],
        ;
      "install ${requirements}":
        command     => "${venv_python} -m pip install --requirement ${requirements}",
        unless      => $complete,
        environment => $sources,
        require     => File[$requirements],
        ;
    }

    file {
      default:
        ensure  => file,
        owner   => 'root',
        group   => 'root',
        require => Exec["create ${venv}"],
        ;
      $requirements:
        mode    => '0644',
        content => $pins.join,
        ;
      "${venv}/bin/tf_submit":
        mode    => '0755',
        content => "#!/bin/sh\nexec ${venv_python} ${tf_submit::directory}/tf_submit.py \"$@\"\n",
        ;
    }
  }
}
