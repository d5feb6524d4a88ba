"""Feature levels: what the whole cluster has agreed to speak, and how a cluster begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tidelog.controller.decisions.outcome import NO_ERROR, ApiError, Decision, Draft, Refused
from tidelog.controller.decisions.policy import (
    ELR_FEATURE,
    MIN_INSYNC_REPLICAS,
    ControllerPolicy,
)
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionState
from tidelog.controller.metadata.records import (
    CLUSTER_DEFAULT,
    LEADERLESS,
    ClearElr,
    Config,
    FeatureLevel,
    FeatureRange,
    MetadataRecord,
    ResourceType,
)
from tidelog.kernel.errors import ErrorCode

METADATA_VERSION: Final = "metadata.version"
ALL_TOPICS: Final = ""


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    feature: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE.value


def bootstrap_records(policy: ControllerPolicy) -> tuple[MetadataRecord, ...]:
    """The first records of a new cluster: everything supported, at its highest level."""
    levels = [
        FeatureLevel(name, high) for name, (_, high) in sorted(policy.supported_features.items())
    ]
    return (*levels, _cluster_min_isr(policy))


def _cluster_min_isr(policy: ControllerPolicy) -> Config:
    # ELR is only sound if all nodes agree on min.insync.replicas, so it becomes metadata.
    value = str(policy.settings.get_int(MIN_INSYNC_REPLICAS))
    return Config(ResourceType.BROKER, CLUSTER_DEFAULT, MIN_INSYNC_REPLICAS, value)


def decide_feature_updates(
    image: MetadataImage,
    policy: ControllerPolicy,
    updates: Iterable[FeatureUpdate],
    *,
    validate_only: bool = False,
) -> Decision[ApiError]:
    """All updates or none."""
    draft = Draft(image)
    for update in updates:
        try:
            _check(draft.image, policy, update)
        except Refused as refused:
            message = (
                "The update failed for all features since the following feature had an error:"
                f" Invalid update version {update.level} for feature {update.feature}."
                f" {refused.error.message}"
            )
            return Decision((), ApiError(refused.error.code, message))
        draft.add(_records(draft.image, policy, update))
    return Decision(() if validate_only else tuple(draft.records), NO_ERROR)


def _check(image: MetadataImage, policy: ControllerPolicy, update: FeatureUpdate) -> None:
    if update.upgrade_type not in tuple(UpgradeType):
        raise _invalid("The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _invalid("A feature version cannot be less than 0.")
    local = policy.supported_features.get(update.feature)
    _check_range(f"Local controller {policy.node_id}", local, update.level)
    for what, ranges in _node_features(image):
        offered = {feature.name: (feature.min_level, feature.max_level) for feature in ranges}
        _check_range(what, offered.get(update.feature), update.level)
    current = image.features.get(update.feature, 0)
    if update.level < current:
        _check_downgrade(image, update)
    elif update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        raise _invalid("Can't downgrade to a newer version.")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_UPDATE_VERSION, message)


def _check_range(who: str, supported: tuple[int, int] | None, level: int) -> None:
    if supported is None:
        raise _invalid(f"{who} does not support this feature.")
    low, high = supported
    if not low <= level <= high:
        raise _invalid(f"{who} only supports versions {low}-{high}")


def _node_features(image: MetadataImage) -> Iterable[tuple[str, tuple[FeatureRange, ...]]]:
    for broker_id in sorted(image.brokers):
        yield f"Broker {broker_id}", image.brokers[broker_id].features
    for controller_id in sorted(image.controllers):
        yield f"Controller {controller_id}", image.controllers[controller_id].features


def _check_downgrade(image: MetadataImage, update: FeatureUpdate) -> None:
    if update.upgrade_type == UpgradeType.UPGRADE:
        raise _invalid(
            "Can't downgrade the version of this feature without setting the upgrade type to"
            " either safe or unsafe downgrade."
        )
    if update.feature == METADATA_VERSION:
        raise _invalid("The metadata version cannot be lowered: records would be lost.")
    if update.feature == ELR_FEATURE and any(map(_relies_on_elr, _leaderless(image))):
        raise _invalid("Partitions without in-sync replicas rely on their eligible ones.")


def _leaderless(image: MetadataImage) -> Iterable[PartitionState]:
    for ref in image.topics.led_by(LEADERLESS):
        yield image.topics.by_id[ref.topic_id].partitions[ref.partition]


def _relies_on_elr(state: PartitionState) -> bool:
    return not state.isr and bool(state.elr or state.last_known_elr)


def _records(
    image: MetadataImage, policy: ControllerPolicy, update: FeatureUpdate
) -> Iterable[MetadataRecord]:
    current = image.features.get(update.feature, 0)
    if update.level == current:
        return
    yield FeatureLevel(update.feature, update.level)
    if update.feature == ELR_FEATURE:
        cluster = image.config(ResourceType.BROKER, CLUSTER_DEFAULT)
        if update.level == 0:
            yield ClearElr(ALL_TOPICS)
        elif MIN_INSYNC_REPLICAS not in cluster:
            yield _cluster_min_isr(policy)
