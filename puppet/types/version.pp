# @summary The exact version of a Python package, such as 2.21.0 or 2.21.0rc1
type Tf_submit::Version = Pattern[/\A\d[\w.+!]*\z/]
