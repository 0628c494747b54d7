# frozen_string_literal: true

# What the documentation shows, as somebody would copy it.
describe 'tf_submit' do
  let(:facts) { supported_hosts['Debian 12'].merge('swprofilename' => 'execd') }

  readme = File.read(File.join(MODULE, 'README.md'))
  shown = readme.scan(/^```puppet\n(.*?)^```/m).flatten
  examples = Dir[File.join(MODULE, 'examples', '*.pp')].map { |path| File.read(path) }

  it('has some to look at') { expect([shown.size, examples.size]).to all(be > 3) }

  (shown + examples).each do |manifest|
    context "with\n#{manifest}" do
      let(:pre_condition) { manifest }

      it { is_expected.to compile.with_all_deps }
    end
  end

  context 'with the hiera data of a Tortuga installation' do
    let(:hiera_config) { File.join(MODULE, 'spec', 'tortuga_hiera.yaml') }
    let(:pre_condition) { "lookup('classes', { 'merge' => 'unique' }).include" }

    it { is_expected.to compile.with_all_deps }
    it { is_expected.to contain_class('tf_submit::node').with_wheels('/shared/wheels') }

    it 'is what the README shows' do
      expect(readme).to include(File.read(File.join(MODULE, 'examples', 'hieradata', 'tortuga-execd.yaml')))
    end
  end
end
