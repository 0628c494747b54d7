"""The folder that a run leaves: found again by a job that runs again, never shared by local runs."""

from __future__ import annotations

import json
import os
import threading

import pytest

from tf_submit import JobFolder, UserError


def test_a_job_has_a_folder_of_its_name_and_id(tmp_path):
    folder = JobFolder.create("train", "17", parent=str(tmp_path))
    assert folder.path == str(tmp_path / "train.tf17")
    assert folder.log_path("worker-0") == str(tmp_path / "train.tf17" / "logs" / "worker-0.log")
    assert (tmp_path / "train.tf17" / "logs").is_dir()


def test_without_a_parent_it_lies_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert JobFolder.create("train", "17").path == "train.tf17"
    assert (tmp_path / "train.tf17" / "logs").is_dir()


def test_a_job_that_runs_again_finds_its_folder(tmp_path):
    log = tmp_path / "train.tf17" / "logs" / "worker-0.log"
    JobFolder.create("train", "17", parent=str(tmp_path))
    log.write_text("first run\n")
    JobFolder.create("train", "17", parent=str(tmp_path))
    assert log.read_text() == "first run\n"


def test_local_runs_are_numbered(tmp_path):
    folders = [JobFolder.create_local("example.py", parent=str(tmp_path)) for _ in range(3)]
    assert [folder.job_id for folder in folders] == ["local1", "local2", "local3"]
    assert sorted(os.listdir(tmp_path)) == [f"example.py.tflocal{number}" for number in (1, 2, 3)]


def test_local_runs_at_the_same_moment_get_folders_of_their_own(tmp_path):
    ids = []
    threads = [
        threading.Thread(target=lambda: ids.append(JobFolder.create_local("x", parent=str(tmp_path)).job_id))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids) == sorted(f"local{number}" for number in range(1, 17))


@pytest.mark.parametrize(
    "create", [lambda p: JobFolder.create("a", "1", p), lambda p: JobFolder.create_local("a", p)]
)
def test_a_folder_that_cannot_be_made_is_named_with_a_way_out(tmp_path, create):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UserError, match="cannot make the job's folder .*/file/a.tf.*: Not a directory; .*qsub -wd"
    ):
        create(str(tmp_path / "file"))


def test_json_files_are_replaced_whole(tmp_path):
    folder = JobFolder.create("train", "17", parent=str(tmp_path))
    folder.write_json("cluster.json", {"job_id": "17", "tasks": list(range(1000))})
    before = os.stat(tmp_path / "train.tf17" / "cluster.json").st_ino
    folder.write_json("cluster.json", {"job_id": "17", "host": "Köln"})
    after = tmp_path / "train.tf17" / "cluster.json"
    assert json.loads(after.read_text()) == {"job_id": "17", "host": "Köln"}
    assert after.read_text().endswith("}\n")
    assert os.stat(after).st_ino != before
    assert sorted(os.listdir(tmp_path / "train.tf17")) == ["cluster.json", "logs"]


def test_a_json_file_that_cannot_be_written_is_named(tmp_path):
    folder = JobFolder.create("train", "17", parent=str(tmp_path))
    (tmp_path / "train.tf17" / "summary.json").mkdir()
    with pytest.raises(UserError, match="cannot write .*/train.tf17/summary.json: Is a directory"):
        folder.write_json("summary.json", {})
