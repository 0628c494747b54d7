# @summary tf_submit.py and example.py in a folder of this host
#
# All that a submit host needs. The classes for compute nodes and for the qmaster include this one and
# follow its `ensure`.
#
# @example A submit host
#   include tf_submit
#
# @param ensure
#   `absent` takes from this host all that the classes of the module made. The packages of the operating
#   system stay.
# @param directory
#   The folder of the scripts. Its parent must exist.
class tf_submit (
  Enum['present', 'absent'] $ensure = 'present',
  Tf_submit::Path $directory = '/opt/tf_submit',
) {
  ['tf_submit.py', 'example.py'].each |$script| {
    file { "${directory}/${script}":
      ensure => $ensure,
      owner  => 'root',
      group  => 'root',
      mode   => '0755',
      source => "puppet:///modules/tf_submit/${script}",
      links  => follow,
    }
  }

  tf_submit::folder { "${directory}/sample_digits":
    ensure => $ensure,
    source => 'sample_digits',
  }

  if $ensure == 'present' {
    file { $directory:
      ensure => directory,
      owner  => 'root',
      group  => 'root',
      mode   => '0755',
    }
  } else {
    # The folder stays if somebody has put more into it.
    exec { "rmdir ${directory}":
      path     => ['/usr/bin', '/bin'],
      provider => shell,
      onlyif   => "test -d ${directory} && test -z \"$(ls -A ${directory})\"",
      require  => [
        File["${directory}/tf_submit.py", "${directory}/example.py"],
        Tf_submit::Folder["${directory}/sample_digits"],
      ],
    }
  }
}
