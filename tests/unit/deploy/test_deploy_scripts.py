"""The scripts that go into the image, without an image."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "deploy" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


entrypoint = script("entrypoint")
healthcheck = script("healthcheck")
slim = script("slim")
strip_wheels = script("strip_wheels")

FEW = {"log.dirs", "http.listener"}


@pytest.mark.parametrize(
    ("given", "added"),
    [
        (set(), FEW | set(entrypoint.ALONE)),
        ({"num.partitions"}, FEW | set(entrypoint.ALONE)),
        ({"listeners"}, FEW | set(entrypoint.ALONE) - {"listeners"}),
        ({"node.id"}, FEW),
        ({"broker.id"}, FEW),
        ({"controller.quorum.voters"}, FEW),
        ({"controller.quorum.bootstrap.servers"}, FEW),
        ({"node.id", "log.dir"}, {"http.listener"}),
        ({"node.id", "log.dirs", "http.listener"}, set()),
    ],
)
def test_what_a_container_adds_to_the_settings(given: set[str], added: set[str]) -> None:
    assert set(entrypoint.additions(given)) == added


def test_names_come_from_everywhere() -> None:
    found = entrypoint.given_names(
        "node.id=1\n# listeners=no\n",
        {"KAFKA_LOG_DIRS": "/x", "TIDELOG_HTTP_LISTENER": "", "HOME": "/"},
        ["num.partitions=3"],
    )
    assert found == {"node.id", "log.dirs", "http.listener", "num.partitions"}


@pytest.mark.parametrize(
    ("asked", "found", "alone", "chosen"),
    [
        ("asked", ["found"], False, "asked"),
        ("", ["found"], False, "found"),
        (None, ["found"], True, "found"),
        (None, [], True, "random"),
    ],
)
def test_the_cluster_of_a_directory(
    asked: str | None, found: list[str], alone: bool, chosen: str
) -> None:
    picked = entrypoint.chosen_cluster_id(asked, found, alone=alone, random_id="random")
    assert picked == chosen


def test_a_node_of_several_invents_no_cluster() -> None:
    with pytest.raises(entrypoint.CannotPrepare, match="CLUSTER_ID"):
        entrypoint.chosen_cluster_id(None, [], alone=False, random_id="random")


def test_empty_directories_are_formatted_and_full_ones_left(tmp_path: Path) -> None:
    data = tmp_path / "data"
    environment = {"KAFKA_LOG_DIRS": str(data)}
    arguments = entrypoint.prepare([], environment)
    assert "node.id=1" in arguments and f"log.dirs={data}" not in arguments
    written = (data / "meta.properties").read_bytes()
    entrypoint.prepare([], environment)
    assert (data / "meta.properties").read_bytes() == written
    with pytest.raises(entrypoint.CannotPrepare, match="formatted for cluster"):
        entrypoint.prepare([], {**environment, "CLUSTER_ID": "another"})


def test_a_mounted_file_and_overrides_are_handed_on(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"node.id=5\nlog.dirs={tmp_path / 'data'}\ncontroller.quorum.voters=5@localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n",
        encoding="utf-8",
    )
    arguments = entrypoint.prepare(
        ["--config", str(file), "-o", "num.partitions=2", "--log-level", "DEBUG"],
        {"CLUSTER_ID": "abc"},
    )
    assert arguments == [
        "--config", str(file), "-o", "num.partitions=2", "-o", "http.listener=:9644",
        "--log-level", "DEBUG",
    ]  # fmt: skip


def test_wrong_settings_are_told_before_anything_is_written(tmp_path: Path) -> None:
    environment = {"KAFKA_LOG_DIRS": str(tmp_path / "data"), "KAFKA_NUM_PARTITIONS": "some"}
    with pytest.raises(entrypoint.CannotPrepare, match="KAFKA_NUM_PARTITIONS"):
        entrypoint.prepare([], environment)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("environment", "lines", "listener"),
    [
        ({}, [], ":9644"),
        ({}, ["# http.listener=:1\n", "http.listener = :2\n"], ":2"),
        ({"KAFKA_HTTP_LISTENER": ":3"}, ["http.listener=:2\n"], ":3"),
        ({"KAFKA_HTTP_LISTENER": ":3", "TIDELOG_HTTP_LISTENER": ":4"}, [], ":4"),
        ({"TIDELOG_HTTP_LISTENER": ""}, [], ""),
    ],
)
def test_the_health_check_finds_the_address(
    environment: dict[str, str], lines: list[str], listener: str
) -> None:
    assert healthcheck.http_listener(environment, lines) == listener


@pytest.mark.parametrize(
    ("listener", "address"),
    [
        (":9644", ("127.0.0.1", 9644)),
        ("0.0.0.0:1", ("127.0.0.1", 1)),
        ("[::]:1", ("::1", 1)),
        ("node1:1", ("node1", 1)),
    ],
)
def test_the_health_check_dials_its_own_node(listener: str, address: tuple[str, int]) -> None:
    assert healthcheck.dialled(listener) == address


def test_only_what_no_node_reads_is_dropped(tmp_path: Path) -> None:
    kept = ["numpy/core.py", "numpy/core.so", "tidelog/tests/x.py", "a.dist-info/LICENSE.md"]
    dropped = ["numpy/tests/t.py", "numpy/core.pyi", "zstandard/_cffi.cpython-311.so"]
    for name in [*kept, *dropped]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {str(path.relative_to(tmp_path)) for path in slim.unread(tmp_path)}
    assert found == {"numpy/tests", "numpy/core.pyi", "zstandard/_cffi.cpython-311.so"}


def test_a_wheel_is_written_anew_only_if_that_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in ("a/x.so", "a.libs/y.so", "a/z.py"):
            file.writestr(name, b"12345678")
    monkeypatch.setattr(strip_wheels, "strip_one", lambda command, content: content[:4])
    assert strip_wheels.strip_wheel("strip", wheel) == 4
    with zipfile.ZipFile(wheel) as file:
        sizes = {entry.filename: entry.file_size for entry in file.infolist()}
    assert sizes == {"a/x.so": 4, "a.libs/y.so": 8, "a/z.py": 8}
    written = wheel.stat().st_ino
    monkeypatch.setattr(strip_wheels, "strip_one", lambda command, content: content)
    assert strip_wheels.strip_wheel("strip", wheel) == 0
    assert wheel.stat().st_ino == written and list(tmp_path.iterdir()) == [wheel]
