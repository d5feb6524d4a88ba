"""AlterConfigs, IncrementalAlterConfigs and UpdateFeatures as clients send them."""

from __future__ import annotations

from typing import Any

from tidelog.controller.decisions.configs import (
    ConfigOperation,
    ResourceChange,
    ResourceReplacement,
    ResourceResult,
    decide_incremental_configs,
    decide_whole_configs,
)
from tidelog.controller.decisions.features import (
    FeatureUpdate,
    UpgradeType,
    decide_feature_updates,
)
from tidelog.controller.decisions.outcome import NO_ERROR, Decision
from tidelog.controller.service.admin_codec import Reply
from tidelog.controller.service.admin_topics import few
from tidelog.controller.service.controller import Basis, Cause, Controller
from tidelog.wire.protocol.kio_values import field_of


async def alter_configs(controller: Controller, request: Any, reply: Reply, who: str) -> bytes:
    replacements = [
        ResourceReplacement(
            int(one.resource_type),
            one.resource_name,
            tuple((config.name, config.value) for config in one.configs),
        )
        for one in request.resources
    ]

    def decide(basis: Basis) -> Decision[tuple[ResourceResult, ...]]:
        return decide_whole_configs(
            basis.image, basis.policy, replacements, validate_only=request.validate_only
        )

    names = few([one.resource_name for one in replacements])
    cause = Cause(f"replace the settings of {names}", f"{who} asked for it")
    return _config_results(reply, await controller.change(cause, decide))


async def incremental_alter_configs(
    controller: Controller, request: Any, reply: Reply, who: str
) -> bytes:
    changes = [
        ResourceChange(
            int(one.resource_type),
            one.resource_name,
            tuple(ConfigOperation(c.name, int(c.config_operation), c.value) for c in one.configs),
        )
        for one in request.resources
    ]

    def decide(basis: Basis) -> Decision[tuple[ResourceResult, ...]]:
        return decide_incremental_configs(
            basis.image, basis.policy, changes, validate_only=request.validate_only
        )

    names = few([one.resource_name for one in changes])
    cause = Cause(f"change settings of {names}", f"{who} asked for it")
    return _config_results(reply, await controller.change(cause, decide))


def _config_results(reply: Reply, results: tuple[ResourceResult, ...]) -> bytes:
    return reply.body(
        responses=tuple(
            reply.item(
                "AlterConfigsResourceResponse",
                error=one.error,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in results
        )
    )


async def update_features(controller: Controller, request: Any, reply: Reply, who: str) -> bytes:
    updates = [_feature_update(one) for one in request.feature_updates]
    validate_only = field_of(request, "validate_only", False)
    names = few([one.feature for one in updates])
    error = await controller.change(
        Cause(f"change the level of feature {names}", f"{who} asked for it"),
        lambda basis: decide_feature_updates(
            basis.image, basis.policy, updates, validate_only=validate_only
        ),
    )
    results: tuple[Any, ...] = ()
    if reply.version <= 1 and not error.is_error:
        results = tuple(
            reply.item("UpdatableFeatureResult", error=NO_ERROR, feature=one.feature)
            for one in updates
        )
    return reply.body(error=error, results=results)


def _feature_update(update: Any) -> FeatureUpdate:
    """Version 0 had a flag where later ones say how far a downgrade may go."""
    may_downgrade = field_of(update, "allow_downgrade", False)
    old = UpgradeType.SAFE_DOWNGRADE if may_downgrade else UpgradeType.UPGRADE
    kind = int(field_of(update, "upgrade_type", old.value))
    return FeatureUpdate(update.feature, int(update.max_version_level), kind)
