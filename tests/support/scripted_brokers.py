"""A cluster for commands: answers are plain values, and what is not said is nothing.

An answer is a function from the request to the fields of the response. Fields that a test does not
care about are zero, empty or null, so that a test states what matters in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import pytest

from tidelog.cli.questions import build
from tidelog.wire.protocol.apis import APIS, ApiKey

Answer = Callable[[Any], Mapping[str, Any]]


def response(api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    return build_full(APIS[api_key].load_response_type(version), values)


def build_full(struct_type: Any, values: Mapping[str, Any]) -> Any:
    return build(struct_type, _completed(struct_type, values))


def _completed(struct_type: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    known = {one.name: one.type for one in fields(struct_type)}
    full = {name: _empty(kind) for name, kind in known.items() if name not in values}
    for name, value in values.items():
        if name in known:
            full[name] = _filled(known[name], value)
    return full


def _plain(kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        return next(one for one in get_args(kind) if one is not NoneType)
    return kind


def _filled(kind: Any, value: Any) -> Any:
    kind = _plain(kind)
    if get_origin(kind) is tuple and value is not None:
        return [_filled(get_args(kind)[0], one) for one in value]
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        return _completed(kind, value)
    return value


def _empty(kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        return None
    if get_origin(kind) is tuple:
        return ()
    if isinstance(kind, type) and is_dataclass(kind):
        return _completed(kind, {})
    named = getattr(kind, "__name__", "")
    if kind is bool:
        return False
    if isinstance(kind, type) and issubclass(kind, str):
        return ""
    if kind is bytes:
        return b""
    return 0 if named != "str" else ""


class ScriptedBrokers:
    """Stands in for the connections of ``tidelog.cli.brokers``; keeps what was asked, and where."""

    def __init__(self, answers: Mapping[ApiKey, Answer], nodes: tuple[int, ...] = (1, 2)) -> None:
        self.answers: dict[ApiKey, Answer] = {
            ApiKey.DESCRIBE_CLUSTER: lambda request: {
                "cluster_id": "tide",
                "controller_id": nodes[0],
                "brokers": [
                    {"broker_id": node, "host": f"node-{node}", "port": 9092} for node in nodes
                ],
            },
            ApiKey.FIND_COORDINATOR: lambda request: {
                "coordinators": [
                    {"key": key, "node_id": nodes[-1], "host": f"node-{nodes[-1]}", "port": 9092}
                    for key in request.coordinator_keys
                ]
            },
            **answers,
        }
        self.asked: list[tuple[str, Any]] = []

    def connect(self, address: str, timeout_s: float = 30) -> ScriptedConnection:
        return ScriptedConnection(self, address)

    def questions(self, api_key: ApiKey) -> list[Any]:
        return [one for _, one in self.asked if one.__api_key__ == api_key]

    def install(self, monkeypatch: pytest.MonkeyPatch, *modules: str) -> ScriptedBrokers:
        for module in ("brokers", *modules):
            monkeypatch.setattr(f"tidelog.cli.{module}.Connection", self.connect)
        monkeypatch.setattr("tidelog.cli.brokers._RETRY_S", 0.0)
        return self


class ScriptedConnection:
    def __init__(self, cluster: ScriptedBrokers, address: str) -> None:
        self._cluster = cluster
        self.address = address

    def __enter__(self) -> ScriptedConnection:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def serves(self, api_key: ApiKey, version: int) -> bool:
        return api_key in self._cluster.answers

    def ask(self, request: Any) -> Any:
        api_key = ApiKey(request.__api_key__)
        assert APIS[api_key].serves(request.__version__)
        self._cluster.asked.append((self.address, request))
        return response(api_key, request.__version__, self._cluster.answers[api_key](request))


def topics_metadata(partitions: Mapping[str, Mapping[int, int]]) -> Answer:
    """Metadata: topics with the leaders of their partitions; others do not exist."""

    def answer(request: Any) -> Mapping[str, Any]:
        wanted = (
            list(partitions)
            if request.topics is None
            else [str(one.name) for one in request.topics]
        )
        return {
            "topics": [
                {
                    "name": name,
                    "error_code": 0 if name in partitions else 3,
                    "partitions": [
                        {"partition_index": index, "leader_id": leader}
                        for index, leader in partitions.get(name, {}).items()
                    ],
                }
                for name in wanted
            ]
        }

    return answer
