"""The table of what is served under ``/v1``, and the OpenAPI document made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelog.broker.http import answers
from tidelog.broker.http.answers import Answer

INT: Final = {"type": "integer"}
STRING: Final = {"type": "string"}
BOOL: Final = {"type": "boolean"}
INTS: Final = {"type": "array", "items": INT}


def nullable(kind: Mapping[str, Any]) -> dict[str, Any]:
    return {**kind, "type": [kind["type"], "null"]}


def record(**fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields)}


def listing(key: str, item: Mapping[str, Any]) -> dict[str, Any]:
    return record(**{key: {"type": "array", "items": item}})


@dataclass(frozen=True, slots=True)
class Route:
    path: str
    summary: str
    answer: Answer
    schema: Mapping[str, Any]
    query: tuple[str, ...] = ()
    """Arguments that may be given; those in the path must."""

    @property
    def path_arguments(self) -> tuple[str, ...]:
        parts = self.path.split("/")
        return tuple(part[1:-1] for part in parts if part.startswith("{"))


_TOPIC: Final = {
    "name": STRING, "id": STRING, "internal": BOOL, "replication_factor": INT,
    "under_replicated": INT, "without_leader": INT,
}  # fmt: skip
_STATE: Final = record(
    partition=INT, leader=nullable(INT), leader_epoch=INT, partition_epoch=INT, replicas=INTS,
    isr=INTS, eligible_leader_replicas=INTS, adding=INTS, removing=INTS,
)  # fmt: skip
_REPLICA: Final = record(
    topic=STRING, partition=INT,
    role={**STRING, "enum": ["leader", "follower", "none", "offline"]},
    leader=nullable(INT), leader_epoch=INT, replicas=INTS, isr=INTS, min_isr=INT,
    log_start_offset=INT, high_watermark=INT, last_stable_offset=INT, log_end_offset=INT,
    flushed_end_offset=INT, size_bytes=INT, segments=INT, lag=INT,
    followers={"type": "array", "items": record(id=INT, lag=INT, in_sync=BOOL)},
)  # fmt: skip
_COMPACTION: Final = record(
    partition=INT, role=STRING, log_start_offset=INT, log_end_offset=INT, clean_point=INT,
    first_uncleanable=INT, clean_bytes=INT, cleanable_bytes=INT, dirty_ratio={"type": "number"},
    due=BOOL, in_progress=BOOL, clean_floor=INT,
    reasons={"type": "array", "items": record(
        hold=STRING, offset=nullable(INT), detail=STRING, setting=nullable(STRING),
    )},
    waits_for=INTS, last_outcome=nullable(STRING), next_horizon_ms=nullable(INT),
)  # fmt: skip
_BROKER: Final = record(
    id=INT, epoch=INT, rack=nullable(STRING), fenced=BOOL, in_controlled_shutdown=BOOL,
    listeners={"type": "object", "additionalProperties": record(host=STRING, port=INT)},
    log_directories={"type": "array", "items": STRING},
)  # fmt: skip
_GROUP: Final = record(
    id=STRING, type=STRING, state=STRING, members=INT, lag=nullable(INT),
    offsets={"type": "array", "items": record(
        topic=STRING, partition=INT, committed=INT, high_watermark=nullable(INT),
        lag=nullable(INT),
    )},
)  # fmt: skip
_REBALANCE: Final = record(
    started_ms=INT, joined_ms=nullable(INT), ended_ms=nullable(INT), generation=nullable(INT),
    causes={"type": "array", "items": record(at_ms=INT, member_id=STRING, kind=STRING)},
    causes_left_out=INT, last_to_join=nullable(STRING),
    dropped={"type": "array", "items": STRING},
)  # fmt: skip
_QUORUM: Final = {
    "type": "object",
    "required": ["active_controller", "role"],
    "properties": {
        "active_controller": nullable(INT), "role": nullable(STRING), "term": INT,
        "high_watermark": INT, "log_start_offset": INT, "log_end_offset": INT, "voters": INTS,
        "members": {"type": "array", "items": record(
            id=INT, voter=BOOL, log_end_offset=INT, lag=INT, silent_ms=nullable(INT),
        )},
    },
}  # fmt: skip
_CLUSTER: Final = record(
    cluster_id=STRING, node_id=INT, roles={"type": "array", "items": STRING},
    active_controller=nullable(INT), metadata_offset=INT, brokers=INT, brokers_fenced=INT,
    topics=INT, partitions=INT, partitions_without_leader=INT,
    features={"type": "object", "additionalProperties": INT},
)  # fmt: skip

ROUTES: Final = (
    Route("/v1/cluster", "The cluster, as this node knows it.", answers.cluster, _CLUSTER),
    Route("/v1/brokers", "All registered brokers.", answers.brokers, listing("brokers", _BROKER)),
    Route(
        "/v1/topics",
        "All topics.",
        answers.topics,
        listing("topics", record(**_TOPIC, partitions=INT)),
    ),
    Route(
        "/v1/topics/{topic}",
        "One topic with its partitions: leaders, epochs, replicas, ISR.",
        answers.topic,
        record(**_TOPIC, partitions={"type": "array", "items": _STATE}),
    ),
    Route(
        "/v1/topics/{topic}/compaction",
        "How compaction stands for the topic's replicas on this node, and what holds it back.",
        answers.compaction,
        listing("replicas", _COMPACTION),
    ),
    Route(
        "/v1/partitions",
        "The replicas on this node: role, ISR, offsets, sizes and lags.",
        answers.partitions,
        listing("partitions", _REPLICA),
        query=("topic",),
    ),
    Route(
        "/v1/groups",
        "The groups that this node coordinates, with their offsets and lag. The lag is null where"
        " this node holds no replica of a partition.",
        answers.groups,
        listing("groups", _GROUP),
    ),
    Route(
        "/v1/groups/{group}/rebalances",
        "The last rebalances of a group, if this node coordinates it: why, how long, who was last.",
        answers.rebalances,
        record(
            group=STRING,
            coordinated_here=BOOL,
            rebalances={"type": "array", "items": _REBALANCE},
        ),
    ),
    Route(
        "/v1/quorum",
        "The metadata quorum, as this member knows it; only the leader knows the others' logs.",
        answers.quorum,
        _QUORUM,
    ),
)

_PROBES: Final = {
    "/healthz": ("Whether the process is alive.", {"200": "It is."}),
    "/readyz": (
        "Whether the node is registered, unfenced and caught up.",
        {"200": "It is.", "503": "It is not; the body says why."},
    ),
}
_PROBE: Final = {
    "type": "object",
    "required": ["status", "node_id"],
    "properties": {
        "status": STRING,
        "node_id": INT,
        "reasons": {"type": "array", "items": STRING},
    },
}


def openapi(version: str) -> dict[str, Any]:
    """The document at /v1/openapi.json."""
    paths: dict[str, Any] = {}
    for path, (summary, codes) in _PROBES.items():
        replies = {code: _reply(text, _PROBE) for code, text in codes.items()}
        paths[path] = {"get": {"summary": summary, "responses": replies}}
    paths["/metrics"] = {
        "get": {
            "summary": "Metrics in Prometheus' text format.",
            "responses": {"200": {"description": "The page.", "content": {"text/plain": {}}}},
        }
    }
    for route in ROUTES:
        paths[route.path] = {"get": _operation(route)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidelog node", "version": version},
        "paths": paths,
    }


def _operation(route: Route) -> dict[str, Any]:
    replies = {"200": _reply("What was asked for.", route.schema)}
    if route.path_arguments:
        replies["404"] = _reply("There is no such thing.", record(error=STRING))
    parameters = [
        {"name": name, "in": place, "required": place == "path", "schema": STRING}
        for place, names in (("path", route.path_arguments), ("query", route.query))
        for name in names
    ]
    return {"summary": route.summary, "parameters": parameters, "responses": replies}


def _reply(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}
