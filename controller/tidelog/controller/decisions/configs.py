"""Configuration changes, one by one (IncrementalAlterConfigs) or as a whole set (AlterConfigs).

A request is a list of resources; each is accepted or refused as a whole. What a resource may be
given depends on its type (`config_rules`). A change of min.insync.replicas also clears the
eligible leader replicas it was the measure for (see `ClearElr`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeVar

from tidelog.controller.decisions.config_rules import check_values, existing_resource, list_default
from tidelog.controller.decisions.outcome import NO_ERROR, ApiError, Decision, Refused
from tidelog.controller.decisions.policy import (
    MIN_INSYNC_REPLICAS,
    ControllerPolicy,
    elr_enabled,
)
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import (
    CLUSTER_DEFAULT,
    ClearElr,
    Config,
    MetadataRecord,
    ResourceType,
)
from tidelog.kernel.errors import ErrorCode


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigOperation:
    name: str
    operation: int
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """Operations on some settings of a resource."""

    resource_type: int
    resource_name: str
    operations: tuple[ConfigOperation, ...]


@dataclass(frozen=True, slots=True)
class ResourceReplacement:
    """All settings that a resource shall have."""

    resource_type: int
    resource_name: str
    configs: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class ResourceResult:
    resource_type: int
    resource_name: str
    error: ApiError


class _Item(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


Item = TypeVar("Item", bound=_Item)


def decide_incremental_configs(
    image: MetadataImage,
    policy: ControllerPolicy,
    changes: Sequence[ResourceChange],
    *,
    validate_only: bool = False,
) -> Decision[tuple[ResourceResult, ...]]:
    return _decide(image, policy, changes, _changed_values, validate_only)


def decide_whole_configs(
    image: MetadataImage,
    policy: ControllerPolicy,
    replacements: Sequence[ResourceReplacement],
    *,
    validate_only: bool = False,
) -> Decision[tuple[ResourceResult, ...]]:
    return _decide(image, policy, replacements, _replaced_values, validate_only)


def _decide(
    image: MetadataImage,
    policy: ControllerPolicy,
    items: Sequence[Item],
    target: Callable[[MetadataImage, ControllerPolicy, Item], dict[str, str]],
    validate_only: bool,
) -> Decision[tuple[ResourceResult, ...]]:
    times = Counter((item.resource_type, item.resource_name) for item in items)
    records: list[MetadataRecord] = []
    results: list[ResourceResult] = []
    for item in items:
        key = (item.resource_type, item.resource_name)
        try:
            if times[key] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            existing_resource(image, *key)
            values = target(image, policy, item)
            check_values(image, policy, *key, values)
        except Refused as refused:
            results.append(ResourceResult(*key, refused.error))
            continue
        records += _difference(image, *key, values)
        results.append(ResourceResult(*key, NO_ERROR))
    return Decision(() if validate_only else tuple(records), tuple(results))


def _changed_values(
    image: MetadataImage, policy: ControllerPolicy, change: ResourceChange
) -> dict[str, str]:
    _check_distinct(operation.name for operation in change.operations)
    values = dict(image.config(change.resource_type, change.resource_name))
    for operation in change.operations:
        if operation.operation not in tuple(Operation):
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"Unknown operation {operation.operation} for a config"
            )
        if operation.operation == Operation.DELETE:
            values.pop(operation.name, None)
            continue
        if operation.value is None:
            raise _no_null(operation.name)
        if operation.operation == Operation.SET:
            values[operation.name] = operation.value
        else:
            _change_list(image, policy, change, operation, values)
    return values


def _change_list(
    image: MetadataImage,
    policy: ControllerPolicy,
    change: ResourceChange,
    operation: ConfigOperation,
    values: dict[str, str],
) -> None:
    name, kind = operation.name, Operation(operation.operation)
    inherited = list_default(image, policy, change.resource_type, name)
    if inherited is None:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"Can't {kind.name} to key {name} because its type is not LIST.",
        )
    current = _entries(values[name]) if name in values else list(inherited)
    given = _entries(operation.value or "")
    if kind is Operation.APPEND:
        result = current + [entry for entry in given if entry not in current]
    else:
        result = [entry for entry in current if entry not in given]
    if result != current:
        values[name] = ",".join(result)


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _replaced_values(
    image: MetadataImage, policy: ControllerPolicy, replacement: ResourceReplacement
) -> dict[str, str]:
    _check_distinct(name for name, _ in replacement.configs)
    values: dict[str, str] = {}
    for name, value in replacement.configs:
        if value is None:
            raise _no_null(name)
        values[name] = value
    return values


def _check_distinct(names: Iterable[str]) -> None:
    if any(times > 1 for times in Counter(names).values()):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _no_null(name: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")


def _difference(
    image: MetadataImage, resource_type: int, resource_name: str, values: Mapping[str, str]
) -> Iterable[MetadataRecord]:
    current = image.config(resource_type, resource_name)
    for name in sorted({*current, *values}):
        if current.get(name) != values.get(name):
            yield Config(resource_type, resource_name, name, values.get(name))
    if not elr_enabled(image):
        return
    if current.get(MIN_INSYNC_REPLICAS) != values.get(MIN_INSYNC_REPLICAS):
        if resource_type == ResourceType.TOPIC:
            yield ClearElr(resource_name)
        elif resource_type == ResourceType.BROKER and resource_name == CLUSTER_DEFAULT:
            yield ClearElr(topic_name="")
