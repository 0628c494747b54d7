"""Jobs that train with TensorFlow on a real Grid Engine, one for each way to write a distributed script."""

from __future__ import annotations

import re

from jobs import SCRIPTS, Folder, Job

CLASSIC_PLACEHOLDERS = [
    "--ps_hosts={ps_hosts}",
    "--worker_hosts={worker_hosts}",
    "--job_name={job_name}",
    "--task_index={task_index}",
]


def exits(job: Job) -> dict[str, str]:
    """How each task ended, as the summary names it."""
    return {f"{task['role']}:{task['index']}": task["exit"] for task in job.json("summary.json")["tasks"]}


def test_the_example_trains_and_its_job_ends_with_its_last_worker(folder: Folder) -> None:
    words = ["-p", "2222", "/srv/tf_submit/example.py", "--epochs", "2"]
    job = folder.submit(*words, slots=4, qsub=["-binding", "linear:1"]).wait()
    assert job.status == 0, job.output
    assert [record["exit_status"] for record in job.records] == ["0"] * 5
    assert re.search(r"^tf_submit \| worker:2  node\d  node\d:22\d\d  \S+ \(socket \d+\)$", job.output, re.M)
    [accuracy] = re.findall(r"^worker:0@node\d \| Test-Accuracy: (.*)$", job.output, re.MULTILINE)
    assert float(accuracy) > 0.6  # two epochs of the sample give about 0.9, guessing gives 0.1
    assert re.match(r"the job succeeded: 4 tasks on \d hosts, ", job.lines()[-1])
    assert exits(job) == {"ps:0": "stopped", "worker:0": "0", "worker:1": "0", "worker:2": "0"}
    tasks = job.json("summary.json")["tasks"]
    assert all(task["cpu_seconds"] > 1 and task["peak_memory"] > 1e8 for task in tasks)
    assert job.ended - max(task["ended"] for task in tasks if task["role"] == "worker") < 2


def test_placeholders_give_old_tutorials_their_flags_and_proxies_are_kept_out_of_the_cluster(
    folder: Folder,
) -> None:
    proxies = "http_proxy=http://10.77.0.250:3128,https_proxy=http://10.77.0.250:3128"
    words = [f"{SCRIPTS}/old_tutorial.py", *CLASSIC_PLACEHOLDERS]
    job = folder.submit(*words, slots=3, qsub=["-v", proxies]).wait()
    assert job.status == 0, job.output
    assert job.lines("worker:0")[-1] == job.lines("worker:1")[-1] == "learned 3.0"


def test_the_chief_of_a_parameter_server_strategy_ends_the_job_and_the_evaluator_has_the_last_word(
    folder: Folder,
) -> None:
    words = ["--chief", "--evaluator", "--tf-config-only", f"{SCRIPTS}/coordinator.py"]
    job = folder.submit(*words, slots=4).wait()
    assert job.status == 0, job.output
    assert job.lines("chief:0")[-1] == "learned 3.0"
    assert job.lines("evaluator:0")[-1] == "evaluated 3.0"
    assert exits(job) == {"ps:0": "stopped", "chief:0": "0", "worker:0": "stopped", "evaluator:0": "stopped"}
