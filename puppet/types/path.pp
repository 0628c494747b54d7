# @summary An absolute path that needs no quotes in a shell, and is never the root folder
type Tf_submit::Path = Pattern[/\A(\/[\w.+@-]+)+\z/]
