# frozen_string_literal: true

require 'json'
require 'rspec-puppet'
require 'tmpdir'
require 'yaml'

MODULE = File.dirname(__dir__)

# Puppet finds a module by the name of its folder, and the folder of a checkout is not named tf_submit.
MODULES = Dir.mktmpdir
File.symlink(MODULE, File.join(MODULES, 'tf_submit'))

RSpec.configure do |config|
  config.module_path = MODULES
  config.setup_fixtures = false
  config.fail_if_no_examples = true
  config.strict_variables = true
  config.before { Puppet[:strict] = :error }
  config.after(:suite) { FileUtils.rm_r(MODULES) }
end

# The facts of each operating system in metadata.json, by name and release.
def supported_hosts
  supported = JSON.parse(File.read(File.join(MODULE, 'metadata.json')))['operatingsystem_support'].flat_map do |os|
    os['operatingsystemrelease'].map { |release| "#{os['operatingsystem']} #{release}" }
  end
  raise 'metadata.json names no operating system' if supported.empty?

  facts = YAML.load_file(File.join(MODULE, 'spec', 'facts.yaml'))
  supported.to_h { |host| [host, facts.fetch(host)] }
end
