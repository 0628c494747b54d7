# @summary A folder of the module's files, with all that is in it
#
# @api private
#
# @param ensure
#   `absent` removes the folder and whatever is in it.
# @param source
#   The folder in the module's files. It may be a link.
define tf_submit::folder (
  Enum['present', 'absent'] $ensure,
  String[1] $source,
) {
  if $ensure == 'present' {
    file { $title:
      ensure  => directory,
      owner   => 'root',
      group   => 'root',
      mode    => '0644',
      source  => "puppet:///modules/tf_submit/${source}",
      recurse => true,
      links   => follow,
    }
  } else {
    # No source: Puppet would bring back what the folder holds.
    file { $title:
      ensure => absent,
      force  => true,
      backup => false,
    }
  }
}
