"""example.py: which task of which cluster a process is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import example  # noqa: E402
from example import InputError, Task  # noqa: E402

PS, WORKERS = ["node1:2222"], ["node2:2222", "node3:2222"]
FLAGS = "-s node1:2222 -w node2:2222,node3:2222 --job_name=worker --task_index=1"


def task_of(flags: str, tf_config: str = "") -> Task:
    return example.find_task(example.parse_arguments(flags.split()), tf_config)


def tf_config(cluster: dict[str, list[str]], role: str, index: object) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})


@pytest.mark.parametrize("flag", ["-s", "--server", "-m", "--master"])
def test_classic_flags(flag: str) -> None:
    assert task_of(FLAGS.replace("-s", flag)) == Task(PS, WORKERS, "worker", 1)


def test_task_index_is_0_by_default() -> None:
    assert task_of("-s node1:2222 -w node2:2222 --job_name ps") == Task(PS, ["node2:2222"], "ps", 0)


def test_flags_count_more_than_tf_config() -> None:
    other = tf_config({"ps": ["x:1"], "worker": ["y:1"]}, "ps", 0)
    assert task_of(FLAGS, other) == Task(PS, WORKERS, "worker", 1)


@pytest.mark.parametrize("index", [1, "1"])
def test_tf_config(index: object) -> None:
    task = task_of("", tf_config({"ps": PS, "worker": WORKERS}, "worker", index))
    assert task == Task(PS, WORKERS, "worker", 1)


@pytest.mark.parametrize(("role", "index", "number"), [("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)])
def test_a_chief_becomes_worker_0(role: str, index: int, number: int) -> None:
    cluster = {"chief": ["node4:2222"], "worker": WORKERS, "ps": PS}
    task = task_of("", tf_config(cluster, role, index))
    assert task == Task(PS, ["node4:2222", *WORKERS], "worker", number)


@pytest.mark.parametrize("text", ["", "{}", '{"cluster": {}}', '{"task": {"type": "worker", "index": 0}}'])
def test_without_a_cluster_a_single_process(text: str) -> None:
    task = task_of("", text)
    assert task == example.ALONE
    assert task.is_chief


def test_only_worker_0_is_the_chief() -> None:
    roles = [("ps", 0), ("worker", 0), ("worker", 1)]
    assert [Task(PS, WORKERS, *place).is_chief for place in roles] == [False, True, False]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("-s node1:2222 -w node2:2222", "--job_name missing"),
        ("-s node1:2222 --job_name ps", "-w missing"),
        ("--job_name worker --task_index 0", "-s, -w missing"),
        (FLAGS.replace("=1", "=2"), r"no worker 2 among ps \['node1:2222'\] and workers \['node2:2222', "),
        (FLAGS.replace("=1", "=-1"), "no worker -1 among"),
    ],
)
def test_flags_that_name_no_task_are_refused(flags: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        task_of(flags)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "TF_CONFIG cannot be read .*: {"),
        ("[1]", r"TF_CONFIG cannot be read .*: \[1\]"),
        ('{"cluster": {"ps": ["a:1"]}}', "TF_CONFIG cannot be read .*'task'"),
        ('{"cluster": "a:1", "task": {"type": "ps", "index": 0}}', "TF_CONFIG cannot be read"),
        (tf_config({"ps": PS, "worker": WORKERS}, "worker", None), "TF_CONFIG cannot be read"),
        (tf_config({"ps": PS, "worker": WORKERS}, "worker", 2), "no worker 2 among"),
        (tf_config({"ps": PS, "worker": WORKERS}, "evaluator", 0), "no evaluator 0 among"),
        (tf_config({"worker": WORKERS}, "worker", 0), "the cluster has no ps"),
    ],
)
def test_a_tf_config_that_names_no_task_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        task_of("", text)


@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan", "x"])
@pytest.mark.parametrize(("flag", "kind"), [("--learning-rate", "float"), ("--epochs", "int")])
def test_numbers_must_be_positive(
    flag: str, kind: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        example.parse_arguments([flag, value])
    assert f"argument {flag}: '{value}' is not a {kind} above 0" in capsys.readouterr().err


def test_files_go_to_the_folder_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_SUBMIT_JOB_DIR", "/home/u/mnist.tf17")
    options = example.parse_arguments(["--log-dir", "curves"])
    assert options.checkpoint_dir == Path("/home/u/mnist.tf17/checkpoints")
    assert options.log_dir == Path("curves")


def test_outside_a_job_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_SUBMIT_JOB_DIR", raising=False)
    options = example.parse_arguments([])
    assert (options.checkpoint_dir, options.log_dir) == (None, None)
