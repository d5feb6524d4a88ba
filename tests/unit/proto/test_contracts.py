"""The committed code is what the contracts generate, and the contracts keep their own rules."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from google.protobuf.descriptor import FileDescriptor

from tidelog.controller.raft import messages
from tidelog.v1 import (
    common_pb2,
    controller_pb2,
    coordinator_pb2,
    quorum_pb2,
    replication_pb2,
)

PROTO = Path(__file__).parents[3] / "proto"
CONTRACTS = sorted((PROTO / "tidelog/v1").glob("*.proto"))
FILES = [
    module.DESCRIPTOR
    for module in (common_pb2, controller_pb2, coordinator_pb2, quorum_pb2, replication_pb2)
]


def generate(into: Path) -> None:
    """What ``make proto`` runs, into another folder."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outputs = [f"--{kind}_out={into}" for kind in ("python", "pyi", "grpc_python", "mypy_grpc")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", str(PROTO), *outputs]
        + [str(path) for path in CONTRACTS],
        check=True,
        capture_output=True,
        env=os.environ | {"PATH": tools},
    )


def generated_code(under: Path) -> dict[str, str]:
    return {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((under / "tidelog/v1").glob("*_pb2*.py*"))
        if path.suffix in (".py", ".pyi")
    }


def test_the_committed_code_is_current(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="pip install -e '.[dev]' provides grpcio-tools")
    generate(tmp_path)
    fresh, committed = generated_code(tmp_path), generated_code(PROTO)
    assert fresh.keys() == committed.keys()
    stale = [name for name in fresh if fresh[name] != committed[name]]
    assert stale == [], "run `make proto` and commit what it writes"


def test_every_contract_is_looked_at() -> None:
    assert {path.name for path in CONTRACTS} == {Path(file.name).name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
def test_numbers_of_enums_start_with_unspecified(file: FileDescriptor) -> None:
    for name, enum in file.enum_types_by_name.items():
        prefix = snake_case(name).upper()
        assert enum.values_by_number[0].name == f"{prefix}_UNSPECIFIED"
        assert all(value.name.startswith(prefix) for value in enum.values)


def test_every_call_has_its_own_request_and_response() -> None:
    """So that a field added to one call never appears in another by accident."""
    methods = [
        method
        for file in FILES
        for service in file.services_by_name.values()
        for method in service.methods
    ]
    messages = [
        message
        for method in methods
        for message in {method.input_type.full_name, method.output_type.full_name}
    ]
    assert len(messages) == len(set(messages))
    assert len(methods) == 17


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_the_quorum_can_say_everything_raft_says() -> None:
    bodies = {snake_case(kind.__name__) for kind in get_args(messages.Body)}
    oneof = quorum_pb2.QuorumMessage.DESCRIPTOR.oneofs_by_name["body"]
    assert {field.name for field in oneof.fields} == bodies
    for kind in get_args(messages.Body):
        message = quorum_pb2.DESCRIPTOR.message_types_by_name[kind.__name__]
        assert len(message.fields) == len(dataclasses.fields(kind)), kind


def test_an_unset_optional_is_not_zero() -> None:
    fetch = replication_pb2.FetchPartition(fetch_offset=0)
    assert not fetch.HasField("last_fetched_epoch")
    assert not fetch.HasField("clean_point")
    fetch.last_fetched_epoch = 0
    again = replication_pb2.FetchPartition.FromString(fetch.SerializeToString())
    assert again.HasField("last_fetched_epoch")


def test_fields_of_a_newer_release_survive() -> None:
    """A node of an older release skips what it does not know and reads the rest."""
    newer = common_pb2.Endpoint(host="a", port=1).SerializeToString() + b"\xfa\x06\x03new"
    endpoint = common_pb2.Endpoint.FromString(newer)
    assert (endpoint.host, endpoint.port) == ("a", 1)
