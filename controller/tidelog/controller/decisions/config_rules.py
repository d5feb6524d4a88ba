"""Which resources have a configuration, and what they may be given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.controller.decisions.outcome import Refused
from tidelog.controller.decisions.policy import (
    MIN_INSYNC_REPLICAS,
    ControllerPolicy,
    elr_enabled,
)
from tidelog.controller.decisions.topic_names import check_topic_name
from tidelog.controller.decisions.topic_settings import check_topic_settings, settings_of_cluster
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import CLUSTER_DEFAULT, ResourceType
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId
from tidelog.kernel.settings.broker_table import BROKER_SETTINGS
from tidelog.kernel.settings.group_table import GROUP_SETTINGS
from tidelog.kernel.settings.topic_table import TOPIC_SETTINGS
from tidelog.kernel.settings.types import InvalidValue, Kind, Setting, Table, Update

_TABLES: Final[Mapping[int, Table]] = {
    ResourceType.TOPIC: TOPIC_SETTINGS,
    ResourceType.BROKER: BROKER_SETTINGS,
    ResourceType.GROUP: GROUP_SETTINGS,
}


def existing_resource(image: MetadataImage, resource_type: int, name: str) -> None:
    """Raises Refused unless there is such a resource and its configuration is kept here."""
    match resource_type:
        case ResourceType.TOPIC:
            _existing_topic(image, name)
        case ResourceType.BROKER:
            _existing_broker(image, name)
        case ResourceType.GROUP:
            if not name:
                raise _invalid("Default group resources are not allowed.")
        case ResourceType.BROKER_LOGGER:
            raise _invalid("Log levels are changed on the broker itself.")
        case ResourceType.CLIENT_METRICS:
            raise _invalid("Client metrics subscriptions are not available here.")
        case _:
            raise _invalid(f"Unknown resource type {resource_type}")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


def _existing_topic(image: MetadataImage, name: str) -> None:
    if not name:
        raise _invalid("Default topic resources are not allowed.")
    check_topic_name(name)
    if name not in image.topics.by_name:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _existing_broker(image: MetadataImage, name: str) -> None:
    if name == CLUSTER_DEFAULT:
        return
    if not name.isascii() or not name.isdigit() or len(name) > 10:
        raise _invalid(f"Node id must be an integer, but it is: {name}")
    if NodeId(int(name)) not in image.brokers:
        raise Refused(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} is registered."
        )


def list_default(
    image: MetadataImage, policy: ControllerPolicy, resource_type: int, name: str
) -> tuple[str, ...] | None:
    """The inherited entries of a list setting; None if the setting is not a list."""
    row = _TABLES[resource_type].get(name)
    if row is None or row.kind is not Kind.LIST:
        return None
    found = settings_of_cluster(image, policy).first_given(row.synonyms)
    value = found[0] if found is not None else row.default
    return value if isinstance(value, tuple) else ()


def check_values(
    image: MetadataImage,
    policy: ControllerPolicy,
    resource_type: int,
    name: str,
    values: Mapping[str, str],
) -> None:
    """Raises Refused unless the resource may have exactly these settings."""
    match resource_type:
        case ResourceType.TOPIC:
            check_topic_settings(image, policy, values)
        case ResourceType.BROKER:
            _check_broker(image, name, values)
        case _:
            _check_group(policy, values)


def _check_broker(image: MetadataImage, name: str, values: Mapping[str, str]) -> None:
    current = image.config(ResourceType.BROKER, name)
    touched = {n for n in {*current, *values} if current.get(n) != values.get(n)}
    rows = {n: BROKER_SETTINGS[n] for n in sorted(touched) if n in BROKER_SETTINGS}
    fixed = [n for n, row in rows.items() if row.update is Update.READ_ONLY]
    if fixed:
        raise _invalid(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    single = [n for n, row in rows.items() if row.update is Update.PER_BROKER]
    if single and name == CLUSTER_DEFAULT:
        raise _invalid(
            "Cannot update these configs at default cluster level, broker id must be specified:"
            f" [{', '.join(single)}]"
        )
    for setting, row in rows.items():
        if setting in values:
            _check_value(row, values[setting], ErrorCode.INVALID_REQUEST)
    if MIN_INSYNC_REPLICAS in touched and elr_enabled(image):
        _check_min_isr(name, values)


def _check_value(row: Setting, text: str, code: ErrorCode) -> None:
    try:
        row.parse(text)
    except InvalidValue as refused:
        message = f"Invalid value {text} for configuration {row.name}: {refused}"
        raise Refused(code, message) from refused


def _check_min_isr(name: str, values: Mapping[str, str]) -> None:
    """With ELR all nodes must judge an ISR by the same number."""
    if name != CLUSTER_DEFAULT:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
    if MIN_INSYNC_REPLICAS not in values:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )


def _check_group(policy: ControllerPolicy, values: Mapping[str, str]) -> None:
    for name, text in sorted(values.items()):
        row = GROUP_SETTINGS.get(name)
        if row is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        _check_value(row, text, ErrorCode.INVALID_CONFIG)
        _check_group_bounds(policy, row, int(text))


def _check_group_bounds(policy: ControllerPolicy, row: Setting, value: int) -> None:
    kind, rest = row.name.split(".", 1)
    low, high = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    if value < policy.settings.get_int(low):
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"{row.name} must be greater than or equal to {low}"
        )
    if value > policy.settings.get_int(high):
        raise Refused(ErrorCode.INVALID_CONFIG, f"{row.name} must be less than or equal to {high}")
