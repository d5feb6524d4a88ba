"""The HTTP side: probes, JSON that keeps to its own document, errors, and the port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from pretended_node import PretendedNode
from prometheus_client.parser import text_string_to_metric_families

from tidelog.broker.http.app import make_app
from tidelog.broker.http.routes import ROUTES, openapi
from tidelog.broker.http.side import bind
from tidelog.broker.metrics.collecting import Collector
from tidelog.broker.metrics.loop_lag import LoopLag
from tidelog.broker.metrics.state_changes import StateChanges
from tidelog.broker.process import _bind_http
from tidelog.broker.real_ports import CannotStart
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import NodeId
from tidelog.kernel.settings.load import load

Ask = Callable[..., Awaitable[ClientResponse]]
GROUP = "g"


def at_node(node: PretendedNode, scenario: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        collector = Collector(node, StateChanges(NodeId(1)), LoopLag(), version="1.2.3")
        app = make_app(node, collector, version="1.2.3")
        async with TestClient(TestServer(app)) as client:
            await scenario(client)

    asyncio.run(main())


def get(path: str, node: PretendedNode | None = None) -> tuple[int, Any]:
    found: list[tuple[int, Any]] = []

    async def scenario(client: Any) -> None:
        async with client.get(path) as response:
            assert response.content_type == "application/json"
            found.append((response.status, await response.json()))

    at_node(node or PretendedNode(), scenario)
    return found[0]


# --- probes -----------------------------------------------------------------------------------


def test_a_node_that_answers_is_alive() -> None:
    assert get("/healthz", PretendedNode(reasons=("no",))) == (
        200, {"status": "alive", "node_id": 1},
    )  # fmt: skip


def test_a_ready_node_says_so() -> None:
    assert get("/readyz") == (200, {"status": "ready", "node_id": 1, "reasons": []})


def test_a_node_that_is_not_ready_says_why() -> None:
    status, told = get("/readyz", PretendedNode(reasons=("the broker is fenced",)))
    assert status == 503
    assert told == {"status": "not ready", "node_id": 1, "reasons": ["the broker is fenced"]}


def test_metrics_are_text_that_prometheus_reads() -> None:
    async def scenario(client: Any) -> None:
        async with client.get("/metrics") as response:
            assert response.status == 200
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = await response.text()
        names = {family.name for family in text_string_to_metric_families(text)}
        assert "kafka_server_replicamanager_partitioncount" in names

    at_node(PretendedNode(), scenario)


# --- /v1 --------------------------------------------------------------------------------------

KINDS = {
    "integer": int, "number": float, "string": str, "boolean": bool, "object": dict, "array": list,
    "null": type(None),
}  # fmt: skip


def mismatches(schema: dict[str, Any], value: Any, where: str = "$") -> list[str]:
    """What of a value is not as its schema says; knows as much of JSON Schema as is used here."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if type(value) not in [KINDS[kind] for kind in kinds]:
        return [f"{where}: {value!r} is not {kinds}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is not one of {schema['enum']}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            found += mismatches(schema["items"], item, f"{where}[{index}]")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [
            f"{where}: {name} is missing"
            for name in schema.get("required", ())
            if name not in value
        ]
        for name, item in value.items():
            below = known.get(name, schema.get("additionalProperties"))
            found += (
                [f"{where}: {name} is not known"]
                if below is None
                else mismatches(below, item, f"{where}.{name}")
            )
    return found


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: str(route.path))
def test_answers_are_as_the_document_says(route: Any) -> None:
    status, told = get(route.path.replace("{topic}", "t").replace("{group}", GROUP))
    assert status == 200
    document = openapi("1.2.3")["paths"][route.path]["get"]
    schema = document["responses"]["200"]["content"]["application/json"]["schema"]
    assert mismatches(schema, told) == []
    assert any(told.values())


def test_a_schema_can_fail() -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    assert mismatches(schema, {"a": 1}) == []
    assert len(mismatches(schema, {})) == len(mismatches(schema, {"a": "1"})) == 1
    assert len(mismatches(schema, {"a": 1, "b": 2})) == 1


def test_the_document_lists_everything_that_is_served() -> None:
    status, told = get("/v1/openapi.json")
    assert status == 200
    assert told["openapi"].startswith("3.")
    served = {route.path for route in ROUTES} | {"/healthz", "/readyz", "/metrics"}
    assert set(told["paths"]) == served
    [parameter] = told["paths"]["/v1/topics/{topic}"]["get"]["parameters"]
    assert (parameter["in"], parameter["required"]) == ("path", True)


def test_partitions_can_be_asked_for_by_topic() -> None:
    assert len(get("/v1/partitions")[1]["partitions"]) == 5
    assert len(get("/v1/partitions?topic=t")[1]["partitions"]) == 5
    assert get("/v1/partitions?topic=other")[1] == {"partitions": []}


def test_a_groups_lag_is_known_or_null() -> None:
    [first, _] = get("/v1/groups")[1]["groups"]
    assert first["lag"] is None
    assert [offset["lag"] for offset in first["offsets"]] == [20, None]


def test_rebalances_are_told_by_the_coordinator() -> None:
    _, told = get(f"/v1/groups/{GROUP}/rebalances")
    assert told["coordinated_here"] is True
    first, going_on = told["rebalances"]
    assert first["causes"] == [{"at_ms": 5, "member_id": "m-1", "kind": "joined"}]
    assert (first["ended_ms"], first["dropped"]) == (11, ["m-0"])
    assert (going_on["ended_ms"], going_on["generation"]) == (None, None)
    assert get("/v1/groups/a%2Fb%20c/rebalances") == (
        200,
        {"group": "a/b c", "coordinated_here": False, "rebalances": []},
    )
    node = PretendedNode(roles=("controller",))
    node.broker = None
    assert get("/v1/groups/g/rebalances", node)[1]["coordinated_here"] is False


def test_compaction_of_a_topic_is_told_by_each_replica() -> None:
    code, told = get("/v1/topics/t/compaction")
    [one] = told["replicas"]
    assert (code, one["clean_point"], one["first_uncleanable"], one["due"]) == (200, 40, 80, False)
    assert one["reasons"][0] == {
        "hold": "ratio below threshold",
        "offset": None,
        "detail": "0.25, must be above 0.50",
        "setting": "min.cleanable.dirty.ratio",
    }
    assert get("/v1/topics/missing/compaction")[0] == 404
    node = PretendedNode(roles=("controller",))
    node.broker = None
    assert get("/v1/topics/t/compaction", node)[1] == {"replicas": []}


def test_a_node_that_is_only_a_broker_has_no_part_in_the_quorum() -> None:
    node = PretendedNode(roles=("broker",))
    node.controller = None
    assert get("/v1/quorum", node) == (200, {"active_controller": 1, "role": None})


def test_a_node_that_is_only_a_controller_holds_nothing() -> None:
    node = PretendedNode(roles=("controller",))
    node.broker = None
    assert get("/v1/partitions", node)[1] == {"partitions": []}
    assert get("/v1/groups", node)[1] == {"groups": []}


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/topics/nope", "no topic 'nope'"),
        ("/v1/nope", "there is nothing at /v1/nope"),
        ("/", "/v1/openapi.json"),
    ],
)
def test_what_is_not_there_is_said_in_json(path: str, says: str) -> None:
    status, told = get(path)
    assert status == 404
    assert says in told["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(method: str) -> None:
    async def scenario(client: Any) -> None:
        async with client.request(method, "/v1/topics", data=b"x") as response:
            assert response.status == 405
            assert "GET" in response.headers["Allow"]
            assert "read-only" in (await response.json())["error"]

    at_node(PretendedNode(), scenario)


# --- the port ---------------------------------------------------------------------------------


def settings(*overrides: str) -> Any:
    common = ["node.id=1", "controller.quorum.voters=1@127.0.0.1:9093"]
    return load(
        file_text="", file_name="", environment={}, overrides=[*common, *overrides]
    ).settings


def test_a_port_that_was_asked_for_and_is_taken_stops_the_node() -> None:
    with bind(SocketAddress("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotStart, match=f"http.listener: cannot listen on {address}"):
            _bind_http(settings(f"http.listener={address}"))


def test_the_usual_port_that_is_taken_costs_the_metrics_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(address: SocketAddress) -> socket.socket:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr("tidelog.broker.http.side.bind", refuse)
    assert _bind_http(settings()) is None
    assert "no metrics: cannot listen on 127.0.0.1:9644" in caplog.text


def test_no_address_is_off() -> None:
    assert _bind_http(settings("http.listener=")) is None


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_host_or_every_interface_can_be_bound(host: str) -> None:
    with bind(SocketAddress(host, 0)) as bound, socket.socket() as client:
        client.connect(("127.0.0.1", bound.getsockname()[1]))
