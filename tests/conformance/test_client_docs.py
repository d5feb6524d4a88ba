"""The programs in docs/CLIENT.md run, one after the other; so do the tests in docs/TESTING.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.client.sync import Admin
from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")

DOCS = Path(__file__).parents[2] / "docs"


def programs(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_programs_of_the_client(cluster: LocalCluster) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        for topic in ("measured", "copied"):
            admin.create_topic(topic, 1)
    shown = programs("CLIENT.md")
    assert len(shown) == 5
    for program in shown:
        head = f"BOOTSTRAP = {cluster.bootstrap!r}\n"
        found = subprocess.run(
            [sys.executable, "-W", "error", "-c", head + program],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert found.returncode == 0, program + found.stdout + found.stderr


@pytest.mark.slow
def test_the_tests_of_testing(tmp_path: Path) -> None:
    for number, program in enumerate(programs("TESTING.md")):
        (tmp_path / f"test_{number}.py").write_text(program, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 100\n", encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "4 passed" in found.stdout
