"""A task's output: to the job's stdout and stderr line by line, to its log file byte for byte."""

from __future__ import annotations

import os
import threading
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tf_submit
from tf_submit import Console, Task, TaskLog, UserError

PREFIX = b"worker:0@node2 | "


class Job:
    """A console on two files, and tasks that write to it."""

    def __init__(self, folder):
        self.folder = folder
        self.fds = [os.open(folder / name, os.O_RDWR | os.O_CREAT) for name in ("stdout", "stderr")]
        self.console = Console(stdout=self.fds[0], stderr=self.fds[1])

    def task(self, index=0):
        return TaskLog(Task("worker", index, "node2"), str(self.folder / f"worker-{index}.log"), self.console)

    def bytes(self, name):
        return (self.folder / name).read_bytes()

    def clear(self):
        for fd in self.fds:
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
        (self.folder / "worker-0.log").unlink()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One job for all examples of a property; each clears it."""
    job = Job(tmp_path_factory.mktemp("job"))
    yield job
    for fd in job.fds:
        os.close(fd)


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    for fd in job.fds:
        os.close(fd)


def prefixed(output):
    """What the job prints of a task's output, said line by line."""
    return b"".join(PREFIX + line + b"\n" for line in lines_of(output))


def lines_of(output):
    return output.removesuffix(b"\n").split(b"\n") if output else []


PIECES = st.binary(max_size=40) | st.sampled_from([b"\n", b"\n\n", b"a\n", b"tail", b"\r", b"\0", PREFIX])


@given(chunks=st.lists(PIECES))
def test_on_one_stream_the_log_has_exactly_the_bytes_of_the_task(shared, chunks):
    log = shared.task()
    for chunk in chunks:
        log.write(1, chunk)
    log.close()
    output = b"".join(chunks)
    assert shared.bytes("worker-0.log") == output
    assert shared.bytes("stdout") == prefixed(output)
    assert shared.bytes("stderr") == b""
    shared.clear()


@given(chunks=st.lists(st.tuples(st.sampled_from([1, 2]), PIECES)))
def test_on_two_streams_no_line_is_cut_or_lost_or_told_twice(shared, chunks):
    log = shared.task()
    for stream, chunk in chunks:
        log.write(stream, chunk)
    log.close()
    outputs = {stream: b"".join(chunk for name, chunk in chunks if name == stream) for stream in (1, 2)}
    assert shared.bytes("stdout") == prefixed(outputs[1])
    assert shared.bytes("stderr") == prefixed(outputs[2])
    assert sorted(lines_of(shared.bytes("worker-0.log"))) == sorted(
        lines_of(outputs[1]) + lines_of(outputs[2])
    )
    shared.clear()


def test_a_line_is_shown_and_logged_as_soon_as_it_is_whole(job):
    log = job.task()
    log.write(1, b"step 1\nst")
    assert job.bytes("stdout") == PREFIX + b"step 1\n"
    assert job.bytes("worker-0.log") == b"step 1\n"
    log.write(1, b"ep 2\n")
    assert job.bytes("stdout") == PREFIX + b"step 1\n" + PREFIX + b"step 2\n"
    log.close()


def test_streams_are_kept_apart_and_in_order_in_the_log(job):
    log = job.task()
    log.write(1, b"out 1\nout ")
    log.write(2, b"err 1\n")
    log.write(1, b"2\n")
    log.close()
    assert job.bytes("stdout") == PREFIX + b"out 1\n" + PREFIX + b"out 2\n"
    assert job.bytes("stderr") == PREFIX + b"err 1\n"
    assert job.bytes("worker-0.log") == b"out 1\nerr 1\nout 2\n"


def test_last_lines_without_an_end_do_not_run_into_each_other(job):
    log = job.task()
    log.write(1, b"out")
    log.write(2, b"err")
    log.close()
    assert job.bytes("stdout") == PREFIX + b"out\n"
    assert job.bytes("stderr") == PREFIX + b"err\n"
    assert job.bytes("worker-0.log") == b"out\nerr"


def test_a_restarted_task_begins_on_a_new_line(job):
    log = job.task()
    log.write(1, b"killed in the mid")
    log.restart()
    log.write(1, b"again\n")
    log.close()
    assert job.bytes("worker-0.log") == b"killed in the mid\nagain\n"


def test_a_job_that_runs_again_adds_to_its_logs_on_a_new_line(job):
    (job.folder / "worker-0.log").write_bytes(b"first run, cut")
    log = job.task()
    log.write(1, b"second run\n")
    log.close()
    assert job.bytes("worker-0.log") == b"first run, cut\nsecond run\n"


def test_a_line_of_a_megabyte_stays_whole(job):
    line = os.urandom(1_000_000).replace(b"\n", b"\0") + b"\n"
    log = job.task()
    for start in range(0, len(line), 1000):
        log.write(1, line[start : start + 1000])
    assert job.bytes("stdout") == PREFIX + line
    assert job.bytes("worker-0.log") == line
    log.close()


def test_an_endless_line_is_shown_in_pieces_and_logged_as_it_is(job):
    log = job.task()
    size = 3 * tf_submit.LONGEST_LINE
    for _ in range(size // 1_000_000):
        log.write(1, b"x" * 1_000_000)
    log.close()
    shown = job.bytes("stdout").removesuffix(b"\n").split(b"\n")
    assert len(shown) > 1
    assert all(piece.startswith(PREFIX) for piece in shown)
    assert b"".join(piece[len(PREFIX) :] for piece in shown) == job.bytes("worker-0.log")
    assert job.bytes("worker-0.log") == b"x" * (size // 1_000_000 * 1_000_000)


@pytest.mark.parametrize(
    ("kind", "chunk"),
    [("an endless line", b"x" * 3001), ("empty lines", b"\n" * 1_000_000), ("lines", b"abc\n" * 90_000)],
)
def test_memory_is_bounded_whatever_is_printed(job, kind, chunk):
    devnull = os.open(os.devnull, os.O_WRONLY)
    log = TaskLog(Task("worker", 0, "node2"), os.devnull, Console(stdout=devnull))
    tracemalloc.start()
    for _ in range(20_000_000 // len(chunk)):
        log.write(1, chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    log.close()
    os.close(devnull)
    assert peak < 3 * tf_submit.LONGEST_LINE


def test_lines_of_many_tasks_never_mix(job):
    count, lines = 8, 2000
    logs = [job.task(index) for index in range(count)]

    def run(index):
        output = b"".join(b"task %d line %d\n" % (index, line) for line in range(lines))
        for start in range(0, len(output), 777):
            logs[index].write(1, output[start : start + 777])
        logs[index].close()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shown = job.bytes("stdout").splitlines()
    for index in range(count):
        prefix = b"worker:%d@node2 | " % index
        own = [line for line in shown if line.startswith(prefix)]
        assert own == [prefix + b"task %d line %d" % (index, line) for line in range(lines)]
    assert len(shown) == count * lines


def test_the_tail_has_the_last_lines_of_both_streams(job):
    log = job.task()
    log.write(1, b"".join(b"step %d\n" % step for step in range(100)))
    log.write(2, b"Traceback\nValueError: \xff")
    log.flush()
    assert log.tail() == (*(f"step {step}" for step in range(92, 100)), "Traceback", "ValueError: \\xff")
    log.close()


def test_the_tail_is_bounded(job):
    log = job.task()
    log.write(1, b"".join(b"%d " % index + b"x" * 3000 + b"\n" for index in range(100)))
    assert len(log.tail()) <= tf_submit.TAIL_LINES
    assert all(len(line) <= tf_submit.TAIL_WIDTH for line in log.tail())
    assert log.tail()[-1] == "99 " + "x" * (tf_submit.TAIL_WIDTH - 3)
    log.close()


def test_the_tail_shows_what_a_progress_bar_drew_last(job):
    log = job.task()
    log.write(2, b"\r10%\r20%\r30%\r\nKilled\r\n")
    assert log.tail() == ("30%", "Killed")
    log.close()


def test_the_tail_of_a_restarted_task_is_its_own(job):
    log = job.task()
    log.write(1, b"first run\n")
    assert log.tail() == ("first run",)
    log.restart()
    assert log.tail() == ()
    log.close()


def test_a_full_disk_ends_the_log_with_a_warning_and_not_the_output(job):
    log = TaskLog(Task("worker", 0, "node2"), "/dev/full", job.console)
    log.write(1, b"one\n")
    log.write(1, b"two\n")
    log.close()
    assert job.bytes("stdout") == PREFIX + b"one\n" + PREFIX + b"two\n"
    assert job.bytes("stderr") == (
        b"tf_submit: warning: cannot write /dev/full: No space left on device; "
        b"the log ends here, the job goes on\n"
    )


def test_a_stdout_that_nobody_reads_does_not_end_the_log(job):
    reader, writer = os.pipe()
    os.close(reader)
    console = Console(stdout=writer, stderr=job.fds[1])
    log = TaskLog(Task("worker", 0, "node2"), str(job.folder / "worker-0.log"), console)
    log.write(1, b"one\n")
    log.write(1, b"two\n")
    log.close()
    os.close(writer)
    assert job.bytes("worker-0.log") == b"one\ntwo\n"
    assert console.broken == "cannot write the job's standard output: Broken pipe"


def test_a_log_that_cannot_be_opened_is_named(job):
    with pytest.raises(UserError, match="cannot write .*/missing/worker-0.log: No such file or directory"):
        TaskLog(Task("worker", 0, "node2"), str(job.folder / "missing" / "worker-0.log"), job.console)
