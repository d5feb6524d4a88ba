"""Frames that Apache Kafka 4.3.1 answered, sent again to our own sessions."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from admin_desk import Desk
from memory_connection import MemoryConnection
from pretended_cluster import context_of, pretended_cluster
from protocol_golden import GOLDEN

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import Uuid
from tidelog.kernel.settings.broker_table import BROKER_SETTINGS
from tidelog.simulation import World
from tidelog.wire.protocol.apis import APIS
from tidelog.wire.protocol.frames import parse_response_header
from tidelog.wire.protocol.responses import decode_response

CLOSED = "connection closed"
SILENT = "no response"
PATIENCE_S = 5.0
Plain = dict[str, Any]


async def kafkas_desk(world: World, cluster_id: str, address: SocketAddress, **given: str) -> Desk:
    """Broker 1, alone, as the recorded one was set up."""
    known = {name: value for name, value in given.items() if name in BROKER_SETTINGS}
    names = {name.replace(".", "_"): value for name, value in known.items()}
    cluster = await pretended_cluster(world, cluster_id, **names)
    await cluster.start(1, addresses={"PLAINTEXT": address})
    return Desk(world, cluster, context_of(cluster, cluster_id=cluster_id))


def error_setup() -> Plain:
    loaded: Plain = json.loads((GOLDEN / "errors" / "setup.json").read_text(encoding="utf-8"))
    return loaded


async def error_desk(world: World) -> Desk:
    """The broker of golden/errors with its topics."""
    setup = error_setup()
    given = dict(line.split("=", 1) for line in setup["serverProperties"])
    desk = await kafkas_desk(world, setup["clusterId"], SocketAddress("127.0.0.1", 9491), **given)
    for name in ("__consumer_offsets", "__transaction_state"):
        await desk.cluster.create(name, *[(1,)] * 4)
    for name, topic_id in setup["topicIds"].items():
        count = 3 if name == "t3" else 1
        configs = {"retention.ms": "-1"} if name == "t1" else {}
        partitions = [(1,)] * count
        await desk.cluster.create(name, *partitions, topic_id=Uuid.parse(topic_id), configs=configs)
    return desk


async def run_desk(world: World, run: list[Plain]) -> Desk:
    """The broker of a run of golden/wire, with the topics that were there before the run."""
    described = [f["body"] for f in run if f["dir"] == "response" and f["api_name"] == "Metadata"]
    brokers = [body["brokers"][0] for body in described if body["brokers"]]
    address = SocketAddress(brokers[0]["host"], brokers[0]["port"])
    cluster_id = next(body["clusterId"] for body in described if "clusterId" in body)
    given = {"auto.create.topics.enable": "false"}
    desk = await kafkas_desk(world, cluster_id, address, **given)
    made = {
        topic["name"]
        for frame in run
        if frame["dir"] == "request" and frame["api_name"] == "CreateTopics"
        for topic in frame["body"]["topics"]
        if not frame["body"].get("validateOnly")
    }
    for topic in _known_topics(described):
        if topic["name"] not in made:
            topic_id = Uuid.parse(topic["topicId"]) if "topicId" in topic else None
            partitions = [(1,)] * len(topic["partitions"])
            await desk.cluster.create(topic["name"], *partitions, topic_id=topic_id)
    return desk


def _known_topics(described: Iterable[Plain]) -> Iterator[Plain]:
    seen: set[str] = set()
    for body in described:
        for topic in body["topics"]:
            if topic["errorCode"] == 0 and topic["name"] not in seen:
                seen.add(topic["name"])
                yield topic


async def exchange(connection: MemoryConnection, frame: bytes) -> bytes | str:
    """The answer without its size, or what happened instead."""
    connection.send(frame)
    try:
        async with asyncio.timeout(PATIENCE_S):
            answer = await connection.receive()
    except TimeoutError:
        return SILENT
    return CLOSED if answer is None else answer


def decoded(api_key: int, version: int, frame: bytes) -> Plain:
    """A response as dictionaries and lists; names of fields are kio's."""
    _, body = parse_response_header(APIS[api_key], version, frame)
    response: Plain = plain(decode_response(api_key, version, body))
    return response


def plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, uuid.UUID):
        return str(Uuid(value.bytes))
    if hasattr(value, "total_seconds"):
        return value.total_seconds()
    return value
