"""Feature levels: what brokers can do, what the cluster has agreed on, and raising that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tidelog.cli.ask import Connection
from tidelog.cli.brokers import Brokers, error_text, fail_on, patiently
from tidelog.cli.doctor_checks import Spoken
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.questions import question
from tidelog.wire.protocol.apis import ApiKey

_UPGRADE: Final = 1
_TIMEOUT_MS: Final = 30_000


def ask_spoken(connection: Connection) -> Spoken:
    answer = connection.ask(
        question(
            ApiKey.API_VERSIONS,
            4,
            client_software_name="tidelog-cli",
            client_software_version="1",
        )
    )
    fail_on(answer, "the versions of the node")
    return Spoken(
        {int(one.api_key): (int(one.min_version), int(one.max_version)) for one in answer.api_keys},
        {
            str(one.name): (int(one.min_version), int(one.max_version))
            for one in answer.supported_features
        },
        {str(one.name): int(one.max_version_level) for one in answer.finalized_features},
    )


def print_features(bootstrap: str, *, as_json: bool) -> None:
    with Brokers(bootstrap) as brokers:
        spoken = ask_spoken(brokers.any)
    names = sorted({*spoken.supported, *spoken.finalized})
    if as_json:
        rows = [
            {
                "feature": name,
                "supported_min": spoken.supported.get(name, (0, 0))[0],
                "supported_max": spoken.supported.get(name, (0, 0))[1],
                "finalized": spoken.finalized.get(name, 0),
            }
            for name in names
        ]
        print(json.dumps(rows))
        return
    for name in names:
        low, high = spoken.supported.get(name, (0, 0))
        print(
            f"Feature: {name}\tSupportedMinVersion: {low}\tSupportedMaxVersion: {high}\t"
            f"FinalizedVersionLevel: {spoken.finalized.get(name, 0)}"
        )


def parse_levels(entries: list[str]) -> dict[str, int]:
    """``name=level``."""
    levels = {}
    for entry in entries:
        name, equals, level = entry.partition("=")
        if not equals or not name or not level.isascii() or not level.isdigit():
            raise WrongUse(f"{entry}: must be FEATURE=LEVEL, as in metadata.version=1")
        levels[name] = int(level)
    return levels


def upgrade_features(
    bootstrap: str, levels: Mapping[str, int] | None, *, dry_run: bool, as_json: bool
) -> None:
    """None: everything to the highest level that all brokers support."""
    with Brokers(bootstrap) as brokers:
        before = ask_spoken(brokers.any)
        if levels is None:
            everyone = [ask_spoken(brokers.to(node)) for node in brokers.describe().live]
            levels = {
                name: min(one.supported[name][1] for one in everyone)
                for name in before.supported
                if all(name in one.supported for one in everyone)
            }
        wanted = {
            name: level for name, level in levels.items() if before.finalized.get(name, 0) != level
        }
        if lower := [name for name in wanted if wanted[name] < before.finalized.get(name, 0)]:
            now = before.finalized[lower[0]]
            raise CommandFailed(
                f"{lower[0]} is at level {now} already, and this command never lowers a level"
            )
        if wanted:
            _update(brokers, wanted, dry_run=dry_run)
    if as_json:
        print(json.dumps({"upgraded": wanted, "dry_run": dry_run}))
        return
    for name, level in wanted.items():
        done = "could be upgraded" if dry_run else "was upgraded"
        print(f"{name} {done} to {level}.")
    if not wanted:
        print("Nothing to upgrade.")


def _update(brokers: Brokers, wanted: Mapping[str, int], *, dry_run: bool) -> None:
    updates = [
        {"feature": name, "max_version_level": level, "upgrade_type": _UPGRADE}
        for name, level in wanted.items()
    ]
    request = question(
        ApiKey.UPDATE_FEATURES,
        1,
        timeout=_TIMEOUT_MS,
        feature_updates=updates,
        validate_only=dry_run,
    )
    answer = patiently(lambda: brokers.any.ask(request))
    fail_on(answer, "no feature was upgraded")
    problems = [
        f"{one.feature}: {text}" for one in answer.results if (text := error_text(one)) is not None
    ]
    if problems:
        raise CommandFailed("\n".join(problems))
