"""Reading, planning and assigning have no effects: processes, sockets and signals are used elsewhere only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tf_submit

_, *PARTS = re.split(r"^# ={70,} (.+)$", Path(tf_submit.__file__).read_text(), flags=re.MULTILINE)
SECTIONS = {title: ast.parse(body) for title, body in zip(PARTS[::2], PARTS[1::2])}
PURE = ["agent: what tasks are told", "allocation (read)", "plan", "assign"]
EFFECTS = {
    "os",
    "psutil",
    "select",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "threading",
    "time",
}


def effects(section: str) -> set[str]:
    """What a section uses of the modules with effects, as "signal.SIGTERM", and what it imports or opens."""
    found = set()
    for node in ast.walk(SECTIONS[section]):
        text = ast.unparse(node)
        if isinstance(node, (ast.Import, ast.ImportFrom)) or text in ("open", "print", "input"):
            found.add(text)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in EFFECTS:
            found.add(text)
    return found


@pytest.mark.parametrize("section", PURE)
def test_pure_sections_do_nothing_but_open_the_host_file(section):
    assert effects(section) == ({"open"} if section == "allocation (read)" else set())


@pytest.mark.parametrize(
    ("section", "effect"),
    [("agent: look at the host", "socket.socket"), ("transports", "subprocess.Popen")],
)
def test_effects_are_seen_where_they_are(section, effect):
    assert effect in effects(section)
