# frozen_string_literal: true

describe 'tf_submit' do
  supported_hosts.each do |host, facts|
    context "on #{host}" do
      let(:facts) { facts }

      it { is_expected.to compile.with_all_deps }
    end
  end

  it { is_expected.to contain_file('/opt/tf_submit').with(ensure: 'directory', mode: '0755') }
  it { is_expected.to contain_file('/opt/tf_submit/sample_digits').with(ensure: 'directory', recurse: true) }

  %w[tf_submit.py example.py].each do |script|
    it 'installs a script that users can run: a file, also where the module holds a link' do
      is_expected.to contain_file("/opt/tf_submit/#{script}")
        .with(ensure: 'present', mode: '0755', links: 'follow', source: "puppet:///modules/tf_submit/#{script}")
    end
  end

  context 'with another directory' do
    let(:params) { { directory: '/shared/bin' } }

    it { is_expected.to contain_file('/shared/bin/tf_submit.py') }
  end

  context 'with ensure absent' do
    let(:params) { { ensure: 'absent' } }

    it { is_expected.to compile.with_all_deps }
    it { is_expected.to contain_file('/opt/tf_submit/tf_submit.py').with_ensure('absent') }
    it { is_expected.to contain_file('/opt/tf_submit/example.py').with_ensure('absent') }
    it { is_expected.to contain_file('/opt/tf_submit/sample_digits').with(ensure: 'absent', force: true, source: nil) }
    it { is_expected.to contain_exec('rmdir /opt/tf_submit').that_requires('File[/opt/tf_submit/tf_submit.py]') }
  end

  ['opt', '/', '/opt/my folder', '/opt/$(reboot)'].each do |path|
    context "with directory #{path}" do
      let(:params) { { directory: path } }

      it { is_expected.to compile.and_raise_error(/directory/) }
    end
  end
end
