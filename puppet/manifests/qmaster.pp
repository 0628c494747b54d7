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
#   Whether to replace a parallel environment of that name that somebody has set up in another way.
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
  $over = $force ? { true => ' --force', default => '' }
  $in_queues = $queues.map |$queue| { " --queue ${queue}" }.join

  if $tf_submit::ensure == 'present' {
    $ensure_folder = 'directory'
    $ensure_install = 'file'
    $command = "${set_up}${install} --pe ${pe}${in_queues}${complex}${over}"
    File[$folder, $install] -> Exec[$command]
  } else {
    $ensure_folder = 'absent'
    $ensure_install = 'absent'
    $command = "${set_up}${install} --pe ${pe}${complex} --uninstall"
    Exec[$command] -> File[$install, $folder] -> Class['tf_submit']
  }

  exec { $command:
    path     => ['/usr/bin', '/bin', '/usr/sbin', '/sbin'],
    provider => shell,
    cwd      => '/root',
    onlyif   => "test -x ${install}",
    unless   => "${command} --dry-run",
  }

  file {
    default:
      owner  => 'root',
      group  => 'root',
      links  => follow,
      backup => false,
      ;
    $folder:
      ensure  => $ensure_folder,
      mode    => '0644',
      source  => 'puppet:///modules/tf_submit/pe',
      recurse => true,
      force   => true,
      ;
    $install:
      ensure => $ensure_install,
      mode   => '0755',
      source => 'puppet:///modules/tf_submit/pe/install.sh',
      ;
  }
}
