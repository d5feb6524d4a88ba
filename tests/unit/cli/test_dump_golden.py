"""``tidelog log dump`` prints what kafka-dump-log 4.3.1 printed for the same files."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from tidelog.cli.dump import DumpOptions, dump_files

SEGMENTS = Path(__file__).parents[2] / "data/golden/segments"
DIRECTORIES = sorted(str(path.parent.relative_to(SEGMENTS)) for path in SEGMENTS.rglob("dump.txt"))
FILE_LINE = re.compile(rb"^Dumping (\d{20}\.\w+)\n", re.MULTILINE)


def with_plain_newlines(output: bytes) -> bytes:
    """Whoever stored Kafka's output turned each carriage return in it into a newline."""
    return output.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def test_there_is_something_to_compare() -> None:
    assert len(DIRECTORIES) == 156


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_the_whole_dump_is_the_same(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SEGMENTS / directory)
    expected = Path("dump.txt").read_bytes()
    files = [name.decode() for name in FILE_LINE.findall(expected)]
    out, err = io.BytesIO(), io.BytesIO()

    options = DumpOptions(print_data=True, deep=True)
    code = dump_files(files, options, as_json=False, out=out, err=err)

    assert with_plain_newlines(out.getvalue()) == expected
    assert code == 0, err.getvalue().decode()
