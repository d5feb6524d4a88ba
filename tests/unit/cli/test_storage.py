"""``tidelog storage``: directories get an identity once, and are shown as they are."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.kernel.ids import BrokerEpoch, Uuid
from tidelog.kernel.real import OsDisk
from tidelog.storage.node_files import CleanShutdown, write_clean_shutdown

Run = Callable[..., Any]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a node with two directories, one of them also for metadata."""
    file = tmp_path / "node.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=4\ncontroller.quorum.voters=4@127.0.0.1:9093\n"
        f"listeners=PLAINTEXT://:9092,CONTROLLER://:9093\nlog.dirs={tmp_path}/a,{tmp_path}/b\n",
        encoding="utf-8",
    )
    return file


@pytest.fixture
def single(config: Path, tmp_path: Path) -> tuple[str, ...]:
    """The arguments for a node with one directory."""
    return "-c", str(config), "-o", f"log.dirs={tmp_path}/a"


def test_random_ids_are_ids_and_differ(tidelog: Run) -> None:
    first, second = (tidelog("storage", "random-uuid").out.strip() for _ in range(2))
    assert first != second
    assert str(Uuid.parse(first)) == first


def test_format_then_info(tidelog: Run, config: Path, tmp_path: Path) -> None:
    made = tidelog("storage", "format", "-t", "tide", "-c", config)
    assert made.code == 0
    assert made.out == (
        f"Formatting {tmp_path}/a for node 4 of cluster tide.\n"
        f"Formatting {tmp_path}/b for node 4 of cluster tide.\n"
    )
    shown = tidelog("storage", "info", "-c", config)
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[:5] == [
        "Found log directories:",
        f"  {tmp_path}/a",
        f"  {tmp_path}/b",
        "",
        "Found metadata: {cluster.id=tide, node.id=4, version=1}",
    ]
    assert lines[6].startswith(f"{tmp_path}/a: ") and lines[6].endswith("0 bytes, never used")


def test_one_directory_is_shown_as_kafka_shows_it(
    tidelog: Run, single: tuple[str, ...], tmp_path: Path
) -> None:
    made = tidelog("storage", "format", "-t", "tide", *single, "--json")
    (described,) = json.loads(made.out)
    assert described["path"] == f"{tmp_path}/a" and described["is_new"] is True
    shown = tidelog("storage", "info", *single)
    assert shown.out.startswith(
        f"Found log directory:\n  {tmp_path}/a\n\nFound metadata: {{cluster.id=tide, "
        f"directory.id={described['directory_id']}, node.id=4, version=1}}\n"
    )


def test_formatting_twice_must_be_said(tidelog: Run, config: Path, tmp_path: Path) -> None:
    command = ("storage", "format", "-t", "tide", "-c", config)
    tidelog(*command)
    again = tidelog(*command)
    assert (again.code, again.out) == (1, "")
    assert "is formatted already" in again.err and "--ignore-formatted" in again.err
    assert tidelog(*command, "-g").out == "All of the log directories are already formatted.\n"
    (tmp_path / "b/meta.properties").unlink()
    assert tidelog(*command, "-g").out == f"Formatting {tmp_path}/b for node 4 of cluster tide.\n"


@pytest.mark.parametrize("asked", [("-t", "ebb"), ("-t", "tide", "-o", "node.id=5")])
def test_a_directory_of_others_is_refused(
    tidelog: Run, config: Path, asked: tuple[str, ...]
) -> None:
    tidelog("storage", "format", "-t", "tide", "-c", config)
    voters = ("-o", "controller.quorum.voters=4@127.0.0.1:9093,5@127.0.0.1:9193")
    refused = tidelog("storage", "format", "-g", "-c", config, *voters, *asked)
    assert refused.code == 1
    assert "was formatted for " in refused.err and ", not for " in refused.err


def test_info_names_what_is_wrong(tidelog: Run, config: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    shown = tidelog("storage", "info", "-c", config)
    assert shown.code == 1
    assert shown.out == (
        f"Found problems:\n  {tmp_path}/a does not exist\n  {tmp_path}/b is not formatted\n"
    )
    (tmp_path / "b/meta.properties").write_text("version=7\n", encoding="utf-8")
    shown = json.loads(tidelog("storage", "info", "-c", config, "--json").out)
    assert shown["directories"] == []
    assert "version is 7" in shown["problems"][1]


def test_info_tells_how_a_directory_was_left(
    tidelog: Run, data_dir: Path, tmp_path: Path, config: Path
) -> None:
    """On a directory that Kafka itself left."""
    where = ("-c", str(config), "-o", f"log.dirs={data_dir}", "--json")

    def shown() -> dict[str, Any]:
        (one,) = json.loads(tidelog("storage", "info", *where).out)["directories"]
        return dict(one)

    (data_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    first = shown()
    assert (first["partitions"], first["was_shut_down_cleanly"]) == (4, False)
    assert first["log_bytes"] == sum(f.stat().st_size for f in data_dir.glob("*/*.log"))
    write_clean_shutdown(
        OsDisk(), f"{data_dir}/.kafka_cleanshutdown", CleanShutdown(BrokerEpoch(3))
    )
    assert shown()["was_shut_down_cleanly"] is True
    with (data_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert shown()["is_in_use"] is True
    assert shown()["is_in_use"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("format", "-t", "tide", "-c", "{missing}"), "does not exist"),
        (("format", "-c", "{config}"), "Missing option '--cluster-id'"),
        (("format", "-t", "two words", "-c", "{config}"), "--cluster-id: one word"),
        (("format", "-t", "", "-c", "{config}"), "--cluster-id: one word"),
        (("format", "-t", "tide", "-c", "{config}", "-o", "nod.id=3"), "did you mean"),
        (("format", "-t", "tide", "-c", "{config}", "--standalone"), "No such option"),
        (("info",), "Missing option '--config'"),
        (("info", "-c", "{config}", "-o", "node.id=many"), "node.id=many"),
        (("info", "-c", "{config}", "-o", "node.id"), "must be name=value"),
        (("random-uuid", "7"), "unexpected extra argument"),
    ],
)
def test_wrong_uses(
    tidelog: Run, config: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    files = {"config": config, "missing": tmp_path / "missing"}
    ran = tidelog("storage", *(argument.format(**files) for argument in arguments))
    assert ran.code == 2
    assert said in " ".join(ran.err.replace("│", " ").split())
    assert not (tmp_path / "a").exists()


def test_a_file_that_is_no_text_is_refused(tidelog: Run, tmp_path: Path) -> None:
    file = tmp_path / "noise"
    file.write_bytes(b"\xff\xfe\x00")
    ran = tidelog("storage", "info", "-c", file)
    assert (ran.code, str(file) in ran.err) == (2, True)
