"""Our tuples for hot messages as kio's messages and back, so that kio can be the judge of ours.

Both directions go by the names of fields; ``KIO_NAMES`` has those that differ.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from kio.schema.errors import ErrorCode as KioErrorCode

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, NodeId, TimestampMs
from tidelog.wire.protocol import kio_values
from tidelog.wire.protocol.hot_requests.fetch import FetchRequest

KIO_NAMES: dict[str, dict[str, str]] = {
    "ProduceRequest": {"timeout_ms": "timeout", "topics": "topic_data"},
    "ProduceTopic": {"partitions": "partition_data"},
    "ProducePartition": {"partition": "index"},
    "FetchRequest": {"max_wait_ms": "max_wait", "forgotten": "forgotten_topics_data"},
    "FetchTopic": {"name": "topic"},
    "ForgottenTopic": {"name": "topic"},
    "ProduceResponse": {"topics": "responses", "throttle_time_ms": "throttle_time"},
    "ProduceTopicResponse": {"partitions": "partition_responses"},
    "ProducePartitionResponse": {"partition": "index"},
    "RecordError": {"message": "batch_index_error_message"},
    "FetchResponse": {"topics": "responses", "throttle_time_ms": "throttle_time"},
    "FetchTopicResponse": {"name": "topic"},
    "FetchPartitionResponse": {"partition": "partition_index"},
    "MetadataResponse": {"throttle_time_ms": "throttle_time"},
    "MetadataTopic": {"authorized_operations": "topic_authorized_operations"},
    "MetadataPartition": {
        "partition": "partition_index",
        "replicas": "replica_nodes",
        "in_sync_replicas": "isr_nodes",
    },
    "ApiVersionsResponse": {"apis": "api_keys", "throttle_time_ms": "throttle_time"},
}
ABSENT: dict[str, Any] = {
    "name": "",
    "topic_id": ZERO_UUID,
    "cluster_id": None,
    "controller_id": -1,
    "forgotten": [],
}
"""What a version without that field leaves in a field of ours that has no default."""


def to_kio(ours: Any, kio_type: type) -> Any:
    """The fields of ``ours`` that kio's class has."""
    if isinstance(ours, FetchRequest) and int(kio_type.__version__) >= 15:  # type: ignore[attr-defined]
        return _fetch_with_replica_state(ours, kio_type)
    return kio_type(**_kio_fields(ours, kio_type))


def _kio_fields(ours: Any, kio_type: type) -> dict[str, Any]:
    ours_of = {kio: name for name, kio in KIO_NAMES.get(type(ours).__name__, {}).items()}
    values = {}
    for field in fields(kio_type):
        name = ours_of.get(field.name, field.name)
        if hasattr(ours, name):
            values[field.name] = _kio_value(getattr(ours, name), field)
    return values


def _fetch_with_replica_state(ours: FetchRequest, kio_type: type) -> Any:
    (state_type,) = (f.type for f in fields(kio_type) if f.name == "replica_state")
    state = state_type(replica_id=ours.replica_id, replica_epoch=ours.replica_epoch)  # type: ignore[operator]
    return kio_type(**_kio_fields(ours, kio_type), replica_state=state)


def _kio_value(value: Any, field: Any) -> Any:
    annotation = field.type
    if get_origin(annotation) is UnionType:
        (annotation,) = (arg for arg in get_args(annotation) if arg is not NoneType)
    if value is None:
        return None
    if get_origin(annotation) is tuple:
        item: Any = get_args(annotation)[0]
        is_struct = is_dataclass(item)
        return tuple(to_kio(one, item) if is_struct else one for one in value)
    if is_dataclass(annotation):
        return to_kio(value, annotation)  # type: ignore[arg-type]
    match field.metadata["kafka_type"]:
        case "error_code":
            return KioErrorCode(int(value))
        case "timedelta_i32":
            return kio_values.duration_i32(value)
        case "datetime_i64":
            return kio_values.moment(TimestampMs(value))
        case "uuid":
            return kio_values.to_kio_uuid(value)
        case "records":
            return bytes(value)
        case _:
            return value


def from_kio(message: Any, our_type: Any) -> Any:
    names = KIO_NAMES.get(our_type.__name__, {})
    hints = get_type_hints(our_type)
    values = {}
    for name in our_type._fields:
        kio_name = names.get(name, name)
        if hasattr(message, kio_name):
            values[name] = _our_value(getattr(message, kio_name), hints[name])
        elif name not in our_type._field_defaults:
            values[name] = ABSENT[name]
    if our_type is FetchRequest and hasattr(message, "replica_state"):
        values["replica_id"] = NodeId(message.replica_state.replica_id)
        values["replica_epoch"] = message.replica_state.replica_epoch
    return our_type(**values)


def _our_value(value: Any, hint: Any) -> Any:
    """kio's None is a null, the zero uuid or no timestamp, as our annotation tells."""
    nested = _tuple_type(hint)
    if isinstance(value, tuple):
        items = [from_kio(one, nested) if nested else one for one in value]
        return items if get_origin(hint) is list else tuple(items)
    if nested and value is not None:
        return from_kio(value, nested)
    text = str(hint)
    if "Uuid" in text or "TopicId" in text or "DirectoryId" in text:
        return kio_values.from_kio_uuid(value)
    if "TimestampMs" in text:
        return kio_values.timestamp_ms(value)
    if hint is ErrorCode:
        return ErrorCode(value.value)
    if hasattr(value, "total_seconds"):
        return kio_values.milliseconds(value)
    return value


def _tuple_type(hint: Any) -> Any:
    """The NamedTuple that an annotation holds, alone, in a sequence or beside None."""
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return hint
    found = (_tuple_type(arg) for arg in get_args(hint))
    return next((one for one in found if one is not None), None)


class FilledSlice(NamedTuple):
    """Records that lie elsewhere; the test knows their bytes, the encoder only their length."""

    content: bytes

    @property
    def length(self) -> int:
        return len(self.content)


def joined(segments: Any) -> bytes:
    """What goes over the wire, slices filled in."""
    return b"".join(s.content if isinstance(s, FilledSlice) else bytes(s) for s in segments)
