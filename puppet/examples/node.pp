# A compute node, with the defaults.
include tf_submit::node
