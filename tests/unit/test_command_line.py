"""The command line: what options are read as, what is refused, and that the README shows them all."""

from __future__ import annotations

from pathlib import Path

import pytest

import tf_submit
from tf_submit import Options, UserError, parse_options

README = (Path(tf_submit.__file__).parent / "README.md").read_text()


def words(text: str) -> str:
    """The text without its line breaks: argparse breaks lines differently from version to version."""
    return " ".join(text.split())


def test_without_options_all_defaults_are_those_of_options():
    assert parse_options(["train.py"]) == Options(script=("train.py",))


def test_what_follows_the_script_is_the_scripts():
    options = parse_options(["--ps", "2", "train.py", "--ps", "3", "-v", "--", ""])
    assert (options.ps, options.script) == (2, ("train.py", "--ps", "3", "-v", "--", ""))


def test_two_dashes_end_the_options_before_a_command():
    assert parse_options(["--ps", "0", "--", "apptainer", "exec"]).script == ("apptainer", "exec")


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["-p", "2222"], "port", 2222),
        (["--stop-signal", "USR1"], "stop_signal", 10),
        (["--stop-signal", "SIGINT"], "stop_signal", 2),
        (["--stop-signal", "15"], "stop_signal", 15),
        (["--grace", "0.5"], "grace", 0.5),
        (["--local", "3"], "local", 3),
        (["-q"], "verbosity", -1),
        (["-v"], "verbosity", 1),
    ],
)
def test_values_are_read(arguments, name, value):
    assert getattr(parse_options([*arguments, "train.py"]), name) == value


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "which script?"),
        (["-p", "0", "x.py"], "at least 1 is needed"),
        (["-p", "70000", "x.py"], "70000 is not a port: 1 to 65535"),
        (["--ps", "-1", "x.py"], "--ps"),
        (["--ps", "two", "x.py"], "'two' is not a number from 0 to 999999"),
        (["--local", "²", "x.py"], "'²' is not a number from 0 to 999999"),
        (["--local", "1000000", "x.py"], "'1000000' is not a number from 0 to 999999"),
        (["--interface", "", "x.py"], "--interface needs a value that is not empty"),
        (["--tensorboard-logdir", "", "x.py"], "--tensorboard-logdir needs a value that is not empty"),
        (["--json", "x.py"], "--json belongs to --dry-run"),
        (["--grace", "nan", "x.py"], "'nan' is not a number of seconds"),
        (["--grace", "-1", "x.py"], "--grace"),
        (["--stop-signal", "NONE", "x.py"], "'NONE' is not a signal"),
        (["--bind", "always", "x.py"], "invalid choice: 'always'"),
        (["--portt", "1", "x.py"], "unrecognized arguments"),
    ],
)
def test_faults_are_named(arguments, fault):
    with pytest.raises(UserError, match=fault.replace("?", r"\?")):
        parse_options(arguments)


def test_a_fault_ends_with_status_2_and_one_line_on_stderr(capsys):
    assert tf_submit.main(["--ps", "two", "x.py"], {}) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "tf_submit: error: argument --ps: 'two' is not a number from 0 to 999999; see --help\n"
    )


def test_the_readme_shows_every_option_as_help_does():
    readme = words(README)
    for action in tf_submit.make_parser()._actions:
        if action.option_strings:
            assert action.option_strings[-1] in readme
            assert words(action.help or "") in readme
