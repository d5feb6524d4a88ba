"""From what members subscribe to, to the group's epoch.

The epoch grows when a subscription changes, when members come or go, and when the topics they
subscribe to appear, grow or vanish. Each epoch asks for a new target assignment.

Expressions are resolved when the first member brings them, when the topics have changed (at most
every ``LEAST_REFRESH_MS``), and from time to time because of changed permissions. Kafka resolves
them in the background and leaves the member without topics until then; here they are resolved at
once, which ``topic_regex`` makes cheap enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.coordinator.classic.history import CauseKind
from tidelog.coordinator.consumer.core import ConsumerCore
from tidelog.coordinator.consumer.members import Member
from tidelog.coordinator.consumer.topic_regex import InvalidRegex
from tidelog.coordinator.consumer.topics import metadata_hash
from tidelog.coordinator.consumer_records import ResolvedRegex
from tidelog.kernel.ids import Uuid

LEAST_REFRESH_MS: Final = 10_000
FIRST_EPOCH: Final = 2
"""What Kafka gives the first member of a new group."""


def subscribed_names(core: ConsumerCore, member: Member) -> frozenset[str]:
    """By name and by expression, whether the topics exist or not."""
    metadata = member.metadata
    resolved = core.regexes.get(metadata.topic_regex) if metadata.topic_regex else None
    return frozenset(metadata.topic_names) | frozenset(resolved.topics if resolved else ())


def subscribed_ids(core: ConsumerCore, member: Member) -> frozenset[Uuid]:
    found = (core.topics.named(name) for name in subscribed_names(core, member))
    return frozenset(info.topic_id for info in found if info is not None)


def all_subscribed_names(core: ConsumerCore) -> frozenset[str]:
    names: set[str] = set()
    for member in core.members.values():
        names.update(member.metadata.topic_names)
    for regex in _regexes_in_use(core):
        resolved = core.regexes.get(regex)
        names.update(resolved.topics if resolved else ())
    return frozenset(names)


def _regexes_in_use(core: ConsumerCore) -> set[str]:
    used = {member.metadata.topic_regex for member in core.members.values()}
    return {regex for regex in used if regex}


def bump_epoch(core: ConsumerCore) -> None:
    """One more epoch, for the members and topics as they are now."""
    core.seen_version = core.topics.version
    number = metadata_hash(core.topics, all_subscribed_names(core))
    _put_next_epoch(core, number)


def bump_if_topics_changed(core: ConsumerCore, member_id: str) -> bool:
    """Looks at the topics only if they are not the version that was last looked at."""
    if core.seen_version == core.topics.version:
        return False
    core.seen_version = core.topics.version
    number = metadata_hash(core.topics, all_subscribed_names(core))
    if number == core.metadata_hash:
        return False
    core.note_cause(CauseKind.TOPICS_CHANGED, member_id)
    _put_next_epoch(core, number)
    return True


def _put_next_epoch(core: ConsumerCore, number: int) -> None:
    core.put_epoch(max(core.highest_epoch + 1, FIRST_EPOCH), number)


# --- expressions -----------------------------------------------------------------------------


def check_regex(core: ConsumerCore, regex: str | None) -> str | None:
    """What is wrong with an expression, or None; one that the group knows was checked before."""
    if not regex or regex in core.regexes:
        return None
    try:
        core.context.topics_matching(regex)
    except InvalidRegex as error:
        return f"the regular expression {regex!r} is not valid: {error}"
    return None


def drop_unused_regexes(core: ConsumerCore) -> None:
    if core.regexes:
        used = _regexes_in_use(core)
        for regex in sorted(core.regexes.keys() - used):
            core.put_regex(regex, None)


def resolve_regexes(core: ConsumerCore, member: Member, may_see: Callable[[str], bool]) -> bool:
    """Resolves what is new or out of date; whether any expression matches other topics than before.

    Members without an expression never pay for those of others.
    """
    regex = member.metadata.topic_regex
    if not regex:
        return False
    if regex not in core.regexes:
        return _resolve(core, regex, may_see)
    if not _are_outdated(core, core.regexes[regex]):
        return False
    outcomes = [_resolve(core, each, may_see) for each in sorted(_regexes_in_use(core))]
    return any(outcomes)


def _are_outdated(core: ConsumerCore, resolved: ResolvedRegex) -> bool:
    age_ms = core.now_ms - resolved.resolved_ms
    changed = resolved.version != core.topics.version
    least_ms = LEAST_REFRESH_MS if changed else core.settings.regex_refresh_interval_ms
    return not 0 <= age_ms < least_ms  # a time to come is another machine's clock


def _resolve(core: ConsumerCore, regex: str, may_see: Callable[[str], bool]) -> bool:
    known = core.regexes.get(regex)
    try:
        found = core.context.topics_matching(regex)
    except InvalidRegex:
        # It was valid, but has become too expensive for the topics there are now.
        found = known.topics if known else ()
    topics = tuple(name for name in found if may_see(name))
    core.put_regex(regex, ResolvedRegex(topics, core.topics.version, core.now_ms))
    return known is None or known.topics != topics
