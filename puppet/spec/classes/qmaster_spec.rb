# frozen_string_literal: true

describe 'tf_submit::qmaster' do
  install = '/opt/tf_submit/pe/install.sh'
  command = "#{install} --pe tensorflow --queue all.q"

  supported_hosts.each do |host, facts|
    context "on #{host}" do
      let(:facts) { facts }

      it { is_expected.to compile.with_all_deps }
    end
  end

  it { is_expected.to contain_class('tf_submit') }
  it { is_expected.to contain_file('/opt/tf_submit/pe').with(ensure: 'directory', recurse: true, links: 'follow') }
  it { is_expected.to contain_file(install).with(mode: '0755').that_comes_before("Exec[#{command}]") }
  it { is_expected.to contain_exec(command).with_unless("test -x #{install} && #{command} --dry-run") }

  context 'with everything' do
    let(:params) do
      { pe: 'tf', queues: ['all.q', 'gpu.q'], gpu_complex: true, force: true, settings: '/opt/sge/default/common/settings.sh' }
    end

    it do
      everything = '. /opt/sge/default/common/settings.sh && ' \
                   "#{install} --pe tf --queue all.q --queue gpu.q --gpu-complex --force"
      is_expected.to contain_exec(everything).with_unless("test -x #{install} && #{everything} --dry-run")
    end
  end

  context 'with ensure absent' do
    let(:pre_condition) { "class { 'tf_submit': ensure => absent }" }

    it { is_expected.to compile.with_all_deps }

    it 'undoes the installation while install.sh is still there' do
      uninstall = "#{install} --pe tensorflow --uninstall"
      is_expected.to contain_exec(uninstall)
        .with_unless("test ! -x #{install} || #{uninstall} --dry-run")
        .that_comes_before('File[/opt/tf_submit/pe]')
    end

    it { is_expected.to contain_file('/opt/tf_submit/pe').with(ensure: 'absent', force: true, source: nil) }
  end

  context 'beside a compute node' do
    let(:facts) { supported_hosts['Debian 12'] }
    let(:pre_condition) { 'include tf_submit::node' }

    it { is_expected.to compile.with_all_deps }
  end

  { pe: 'a b', queues: [], settings: 'settings.sh' }.each do |parameter, value|
    context "with #{parameter} #{value}" do
      let(:params) { { parameter => value } }

      it { is_expected.to compile.and_raise_error(/#{parameter}/) }
    end
  end
end
