# @summary The name of a queue or of a parallel environment of Grid Engine, such as all.q
type Tf_submit::Name = Pattern[/\A[A-Za-z_][\w.@-]*\z/]
