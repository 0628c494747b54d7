"""How fast the output of a task gets through, next to a bare qrsh, in one run.

    sudo python tests/bench/throughput.py [ROUNDS [MEGABYTES]]

"qrsh" is `qrsh -inherit HOST 'cat FILE; cat >/dev/null'`, read by a loop that does nothing else; "tf_submit"
is a job one of whose tasks prints the same file: with prefixes to the job's output and unchanged to its log,
both in memory, so that no disk counts; the log must then equal what was printed. The output overwrites a file
that is there already: a virtual machine that hands freed memory back to its host can spend more time on new
pages for two gigabytes than on all the rest. Meanwhile another task prints the time every hundredth of a
second: "delay" is how old its last line in the output was at most. "memory" is the peak of the launcher.
Rates are medians, the ratio is the median of those within a round; what starting takes counts.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import _grid

CHUNK = 1 << 18  # bytes that the bare loop reads at once
MEMORY = "/dev/shm"  # on every host
NEWEST = 1 << 23  # bytes of the job's output that are looked through
SCRIPT = """
import os, shutil, sys, time
_, path, rank = sys.argv
if rank == "0":
    with open(path, "rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer, 1 << 20)
    open(path + ".done", "w")
else:
    while not os.path.exists(path + ".done"):
        print(f"now {time.time()}", flush=True)
        time.sleep(0.01)
"""


# ---- in the job


def write_file(path: Path, megabytes: int) -> None:
    """Lines of a length that is no divisor of any buffer's."""
    lines = b"".join(b"%07d %s\n" % (number, b"x" * 70) for number in range(10_000))
    with path.open("wb") as file:
        for _ in range(megabytes * 1_000_000 // len(lines)):
            file.write(lines)


def bare_rate(path: Path) -> float:
    size, read = path.stat().st_size, 0
    command = ["qrsh", "-inherit", _grid.slot_hosts()[0], f"cat {path}; cat >/dev/null"]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        while read < size:
            read += len(os.read(process.stdout.fileno(), CHUNK))
        process.stdin.close()
    return size / 1e6 / (time.monotonic() - began)


def last_line_time(stdout: int) -> float:
    """When the other task printed its last line that is among the newest output; 0 without one."""
    end = os.lseek(stdout, 0, os.SEEK_CUR)  # where the job writes next
    start = max(0, end - NEWEST)
    lines = re.findall(rb"worker:1@\S+ \| now ([\d.]+)\n", os.pread(stdout, end - start, start))
    return float(lines[-1]) if lines else 0.0


def peak_memory(pid: int) -> float:
    """MiB, proc_pid_status(5); 0 once the process has ended."""
    sizes = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(sizes[0]) / 1024 if sizes else 0.0


def tf_submit_rate(path: Path, output: Path) -> dict[str, float]:
    script, done = path.with_name("print.py"), Path(f"{path}.done")
    script.write_text(SCRIPT)
    words = ["-q", "--ps", "0", "--color", "never", str(script), str(path), "{task_index}"]
    began, printed, delay, memory = time.monotonic(), 0.0, 0.0, 0.0
    with output.open("r+b") as stdout:
        process = subprocess.Popen([sys.executable, _grid.TF_SUBMIT, *words], stdout=stdout)
        while not done.exists() and process.poll() is None:
            time.sleep(0.2)
            printed = last_line_time(stdout.fileno()) or printed
            delay = max(delay, time.time() - printed if printed else 0.0)
            memory = max(memory, peak_memory(process.pid))
        status = process.wait()
        seconds = time.monotonic() - began
    [traces] = Path().glob(f"*.tf{os.environ['JOB_ID']}")
    if status or not filecmp.cmp(traces / "logs" / "worker-0.log", path, shallow=False):
        sys.exit(f"the log is not what the task printed, or the job failed with status {status}")
    shutil.rmtree(traces)
    done.unlink()
    return {"tf_submit": path.stat().st_size / 1e6 / seconds, "delay": delay, "memory": memory}


def measure(rounds: int, megabytes: int) -> None:
    path = Path("printed").resolve()
    write_file(path, megabytes)
    os.chdir(MEMORY)
    output = Path("output")
    write_file(output, megabytes * 5 // 4)  # room for the prefixes
    for _ in range(rounds):
        qrsh = bare_rate(path)
        print(json.dumps({"qrsh": qrsh, **tf_submit_rate(path, output)}), flush=True)
    output.unlink()


# ---- outside


def main(rounds: str = "3", megabytes: str = "1000") -> None:
    if _grid.in_job():
        measure(int(rounds), int(megabytes))
        return
    with _grid.new_cluster(slots=1) as cluster:
        found = _grid.run_as_job(cluster, __file__, 2, rounds, megabytes)
    ratio = [each["tf_submit"] / each["qrsh"] for each in found]
    columns = [[each[name] for each in found] for name in ("qrsh", "tf_submit")] + [ratio]
    worst = [f"{max(each[name] for each in found):.2f}" for name in ("delay", "memory")]
    header = ("output", "qrsh [MB/s]", "tf_submit [MB/s]", "ratio", "delay [s]", "memory [MiB]")
    _grid.table(header, (f"{megabytes} MB", *map(_grid.median, columns), *worst))


if __name__ == "__main__":
    main(*sys.argv[1:])
