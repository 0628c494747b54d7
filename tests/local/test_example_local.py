"""The example on this machine, through tf_submit.py, with TensorFlow."""

from __future__ import annotations

import json
import re
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "example.py"


def test_the_example_trains_on_the_sample_digits(folder):
    done = folder.run("--local", "3", str(EXAMPLE), "--epochs", "2", timeout=120)
    output = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert "SAMPLE" in output
    accuracies = re.findall(r"^worker:\d@localhost \| Test-Accuracy: (.*)$", output, re.MULTILINE)
    assert len(accuracies) == 2
    assert min(map(float, accuracies)) > 0.6
    summary = json.loads((folder.path / "example.py.tflocal1" / "summary.json").read_text())
    assert [task["exit"] for task in summary["tasks"]] == ["stopped", "0", "0"]
