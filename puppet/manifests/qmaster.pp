# @summary The qmaster: a parallel environment for TensorFlow, in the queues
#
# Copies pe/ beside the scripts and has its install.sh add the parallel environment, or bring it up to date,
# on the running cluster, whatever its flavour. Each run asks install.sh first whether anything would change.
#
# @example The parallel environment tensorflow in all.q
#   include tf_submit::qmaster
#
# @example In two queues, with a gpu complex, on a cluster outside the system's PATH
#   class { 'tf_submit::qmaster':
#     queues      => ['all.q', 'gpu.q'],
#     gpu_complex => true,
#     settings    => '/opt/sge/default/common/settings.sh',
#   }
#
# @param pe
#   The name of the parallel environment.
# @param queues
#   The queues that offer it. They must exist.
# @param gpu_complex
#   Whether to add a complex for GPUs, which users ask for with `-l gpu=1`.
# @param force
#   Whether to replace a parallel environment of that name that somebody has set up in another way. The old
#   one is kept in a file in /root.
# @param settings
#   The cluster's settings.sh, which makes qconf known. Debian's and Ubuntu's packages need none.
class tf_submit::qmaster (
  Tf_submit::Name $pe = 'tensorflow',
  Array[Tf_submit::Name, 1] $queues = ['all.q'],
  Boolean $gpu_complex = false,
  Boolean $force = false,
  Optional[Tf_submit::Path] $settings = undef,
) {
  contain tf_submit

  $folder = "${tf_submit::directory}/pe"
  $install = "${folder}/install.sh"

  $set_up = $settings.then |$file| { ". ${file} && " }
  $complex = $gpu_complex ? { true => ' --gpu-complex', default => '' }
  $override = $force ? { true => ' --force', default => '' }
  $in_queues = $queues.map |$queue| { " --queue ${queue}" }.join

  if $tf_submit::ensure == 'present' {
    $command = "${set_up}${install} --pe ${pe}${in_queues}${complex}${override}"
    $done = "test -x ${install} && ${command} --dry-run"

    file { $install:
      ensure => file,
      owner  => 'root',
      group  => 'root',
      mode   => '0755',
      source => 'puppet:///modules/tf_submit/pe/install.sh',
      links  => follow,
    }
    Tf_submit::Folder[$folder] -> File[$install] -> Exec[$command]
  } else {
    $command = "${set_up}${install} --pe ${pe}${complex} --uninstall"
    $done = "test ! -x ${install} || ${command} --dry-run"

    Exec[$command] -> Tf_submit::Folder[$folder] -> Class['tf_submit']
  }

  tf_submit::folder { $folder:
    ensure => $tf_submit::ensure,
    source => 'pe',
  }

  exec { $command:
    path     => ['/usr/bin', '/bin', '/usr/sbin', '/sbin'],
    provider => shell,
    cwd      => '/root',
    unless   => $done,
  }
}
