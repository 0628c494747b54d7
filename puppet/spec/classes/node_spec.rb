# frozen_string_literal: true

describe 'tf_submit::node' do
  python_of = {
    'Debian' => { python: '/usr/bin/python3', packages: %w[python3 python3-venv] },
    'RedHat' => { python: '/usr/bin/python3.11', packages: %w[python3.11] },
  }
  create = 'create /opt/tf_submit/venv'
  discard = 'discard /opt/tf_submit/venv'
  requirements = '/opt/tf_submit/venv/requirements.txt'
  install = "install #{requirements}"

  supported_hosts.each do |host, facts|
    context "on #{host}" do
      let(:facts) { facts }

      expected = python_of.fetch(facts['os']['family'])

      it { is_expected.to compile.with_all_deps }
      it { is_expected.to contain_class('tf_submit') }

      expected[:packages].each do |package|
        it { is_expected.to contain_package(package).that_comes_before("Exec[#{create}]") }
      end

      it 'builds the environment with a Python that is new enough for TensorFlow' do
        is_expected.to contain_exec(create)
          .with_command("mkdir /opt/tf_submit/venv && #{expected[:python]} -m venv /opt/tf_submit/venv")
          .that_requires('Class[tf_submit]')
      end

      it 'asks for exact versions' do
        is_expected.to contain_file(requirements)
          .with_content("tensorflow-cpu==2.21.0\npsutil==7.2.2\n")
          .that_requires("Exec[#{create}]")
          .that_comes_before("Exec[#{install}]")
      end

      it 'has a command that runs tf_submit.py with the Python of the environment' do
        is_expected.to contain_file('/opt/tf_submit/venv/bin/tf_submit')
          .with_mode('0755')
          .with_content(/^exec \/opt\/tf_submit\/venv\/bin\/python \/opt\/tf_submit\/tf_submit\.py "\$@"$/)
      end

      it 'installs with the settings that pip finds on the host' do
        is_expected.to contain_exec(install).with_environment([])
      end
    end
  end

  context 'on an operating system without data' do
    let(:facts) { { 'os' => { 'family' => 'Suse' } } }

    it { is_expected.to compile.and_raise_error(/expects a value for parameter '?python'?/) }
  end

  context 'on Debian' do
    let(:facts) { supported_hosts['Debian 12'] }

    context 'for GPUs, with more packages' do
      let(:params) do
        { tensorflow: 'tensorflow[and-cuda]', tensorflow_version: '2.20.0', psutil_version: '7.1.0',
          packages: { 'tf_keras' => '2.20.0' } }
      end

      it do
        is_expected.to contain_file(requirements)
          .with_content("tensorflow[and-cuda]==2.20.0\npsutil==7.1.0\ntf_keras==2.20.0\n")
      end

      it 'does not install over the other build' do
        is_expected.to contain_exec(discard).with_unless(/! \S+ -m pip show tensorflow-cpu$/)
      end
    end

    context 'with a package index' do
      let(:params) { { index_url: 'https://pypi.example.org/simple' } }

      it { is_expected.to contain_exec(install).with_environment(['PIP_INDEX_URL=https://pypi.example.org/simple']) }
    end

    context 'with a wheel folder' do
      let(:params) { { wheels: '/shared/wheels' } }

      it { is_expected.to contain_exec(install).with_environment(['PIP_FIND_LINKS=/shared/wheels', 'PIP_NO_INDEX=1']) }
    end

    context 'with a wheel folder and a package index' do
      let(:params) { { wheels: '/shared/wheels', index_url: 'https://pypi.example.org/simple' } }

      it do
        is_expected.to contain_exec(install).with_environment(
          ['PIP_INDEX_URL=https://pypi.example.org/simple', 'PIP_FIND_LINKS=/shared/wheels']
        )
      end
    end

    context 'with a Python of the site' do
      let(:params) { { python: '/opt/python/bin/python3', python_packages: [], venv: '/opt/tensorflow-2.21' } }

      it { is_expected.to compile.with_all_deps }
      it { is_expected.not_to contain_package('python3') }
      it { is_expected.to contain_exec('create /opt/tensorflow-2.21').with_command(%r{/opt/python/bin/python3 -m venv}) }
    end

    context 'with ensure absent' do
      let(:pre_condition) { "class { 'tf_submit': ensure => absent }" }

      it { is_expected.to compile.with_all_deps }
      it { is_expected.not_to contain_exec(create) }
      it { is_expected.not_to contain_package('python3') }

      it 'removes nothing but a Python environment' do
        is_expected.to contain_exec('remove /opt/tf_submit/venv')
          .with(command: 'rm -r /opt/tf_submit/venv', onlyif: 'test -f /opt/tf_submit/venv/pyvenv.cfg')
          .that_comes_before('Class[tf_submit]')
      end
    end

    { tensorflow: 'tensorflow-gpu', tensorflow_version: 'latest', psutil_version: '>=5.9', index_url: 'pypi',
      venv: 'venv', wheels: 'wheels' }.each do |parameter, value|
      context "with #{parameter} #{value}" do
        let(:params) { { parameter => value } }

        it { is_expected.to compile.and_raise_error(/#{parameter}/) }
      end
    end
  end
end
