# @summary The address of a package index, such as https://pypi.example.org/simple
type Tf_submit::Index = Pattern[/\A(https?|file):\/\/\S+\z/]
