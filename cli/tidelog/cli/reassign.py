"""What ``tidelog reassign`` does: plans replicas' moves, starts, follows and cancels them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.cli.brokers import Brokers, Place, by_topic, error_text, fail_on, patiently
from tidelog.cli.cluster import few
from tidelog.cli.configs import Entity, Kind, alter_entity, describe_entity
from tidelog.cli.exit_codes import OK, PROBLEM
from tidelog.cli.failures import CommandFailed
from tidelog.cli.partition_files import dashed
from tidelog.cli.questions import question
from tidelog.cli.reassignment import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    Assignment,
    Status,
    current_assignment,
    plan_json,
    propose,
    status_line,
    statuses,
    throttles,
)
from tidelog.cli.topics import Topic, describe_topics, list_topics
from tidelog.wire.protocol.apis import ApiKey

_TIMEOUT_MS: Final = 30_000


def generate(
    bootstrap: str,
    names: Sequence[str],
    chosen: Sequence[int] | None,
    *,
    uses_racks: bool,
    factor: int | None,
    plan_only: bool,
    as_json: bool,
) -> None:
    with Brokers(bootstrap) as brokers:
        topics = _topics(brokers, names)
        cluster = brokers.describe()
        nodes = list(cluster.live) if chosen is None else chosen
        proposed = propose(topics, cluster.brokers, nodes, uses_racks=uses_racks, factor=factor)
    current = plan_json(current_assignment(topics))
    if plan_only:
        print(plan_json(proposed))
        return
    if as_json:
        both = {"current": json.loads(current), "proposed": json.loads(plan_json(proposed))}
        print(json.dumps(both))
        return
    print(f"Current partition replica assignment\n{current}\n")
    print(f"Proposed partition reassignment configuration\n{plan_json(proposed)}")


def _topics(brokers: Brokers, names: Sequence[str]) -> list[Topic]:
    there = list_topics(brokers.any)
    if missing := [name for name in names if name not in there]:
        raise CommandFailed(f"topic {missing[0]!r} does not exist; tidelog topic list")
    return describe_topics(brokers.any, names)


def execute(
    bootstrap: str,
    target: Assignment,
    *,
    throttle: int | None,
    additional: bool,
    as_json: bool,
) -> None:
    with Brokers(bootstrap) as brokers:
        topics = _topics(brokers, list(by_topic(target)))
        _check_partitions(target, topics)
        known = brokers.describe().brokers
        unknown = {node for nodes in target.values() for node in nodes} - known.keys()
        if unknown:
            raise CommandFailed(
                f"there is no broker {min(unknown)}; there are {', '.join(map(str, known))}"
            )
        ongoing = _ongoing(brokers)
        if ongoing and not additional:
            raise CommandFailed(
                "other replicas are on the move already "
                f"({few([dashed(place) for place in ongoing])}); wait for them, or add --additional"
            )
        current = {
            place: nodes for place, nodes in current_assignment(topics).items() if place in target
        }
        if throttle is not None:
            _slow_down(brokers, current, target, throttle)
        _alter(brokers, target)
    if as_json:
        print(json.dumps({"previous": json.loads(plan_json(current)), "started": _names(target)}))
        return
    print(f"Current partition replica assignment\n\n{plan_json(current)}\n")
    print("Save this: tidelog reassign execute FILE goes back to it")
    if throttle is not None:
        print(
            f"The inter-broker throttle limit was set to {throttle} B/s; "
            "tidelog reassign verify takes it away when all is done"
        )
    print(f"Successfully started partition reassignments for {','.join(_names(target))}")


def _names(places: Assignment | Sequence[Place]) -> list[str]:
    return [dashed(place) for place in sorted(places)]


def _check_partitions(target: Assignment, topics: Sequence[Topic]) -> None:
    there = current_assignment(topics)
    if missing := sorted(place for place in target if place not in there):
        raise CommandFailed(f"partition {dashed(missing[0])} does not exist")


def _ongoing(brokers: Brokers) -> list[Place]:
    request = question(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=_TIMEOUT_MS, topics=None)
    answer = patiently(lambda: brokers.any.ask(request))
    fail_on(answer, "ongoing reassignments")
    return sorted(
        (str(topic.name), int(one.partition_index))
        for topic in answer.topics
        for one in topic.partitions
    )


def _alter(brokers: Brokers, target: Mapping[Place, tuple[int, ...] | None]) -> None:
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": index, "replicas": target[topic, index]} for index in indexes
            ],
        }
        for topic, indexes in by_topic(target).items()
    ]
    request = question(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout=_TIMEOUT_MS, topics=topics)
    answer = patiently(lambda: brokers.any.ask(request))
    fail_on(answer, "the reassignment was refused")
    problems = [
        f"{dashed((str(topic.name), int(one.partition_index)))}: {text}"
        for topic in answer.responses
        for one in topic.partitions
        if (text := error_text(one)) is not None
    ]
    if problems:
        raise CommandFailed("Error reassigning partition(s):\n" + "\n".join(problems))


def _slow_down(brokers: Brokers, current: Assignment, target: Assignment, rate: int) -> None:
    settings = throttles(current, target)
    for node in settings.brokers:
        values = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
        alter_entity(brokers, Entity(Kind.BROKER, str(node)), values, [])
    for topic in settings.leaders:
        values = {
            LEADER_REPLICAS: settings.leaders[topic],
            FOLLOWER_REPLICAS: settings.followers[topic],
        }
        alter_entity(brokers, Entity(Kind.TOPIC, topic), values, [])


def _speed_up(brokers: Brokers, target: Assignment) -> bool:
    """Take the throttles away; whether there were any."""
    entities = [Entity(Kind.BROKER, str(node)) for node in brokers.describe().live]
    there = list_topics(brokers.any)
    entities += [Entity(Kind.TOPIC, topic) for topic in by_topic(target) if topic in there]
    found = False
    for entity in entities:
        names = (
            [LEADER_RATE, FOLLOWER_RATE]
            if entity.kind is Kind.BROKER
            else [LEADER_REPLICAS, FOLLOWER_REPLICAS]
        )
        own = [
            one.name
            for one in describe_entity(brokers, entity, names)
            if one.source == entity.kind.own_source
        ]
        if own:
            found = True
            alter_entity(brokers, entity, {}, own)
    return found


def verify(bootstrap: str, target: Assignment, *, preserve_throttles: bool, as_json: bool) -> int:
    """The exit code: 1 while something is not as planned."""
    with Brokers(bootstrap) as brokers:
        there = list_topics(brokers.any)
        topics = describe_topics(brokers.any, [one for one in by_topic(target) if one in there])
        found = statuses(target, topics)
        is_over = Status.IN_PROGRESS not in found.values()
        cleared = is_over and not preserve_throttles and _speed_up(brokers, target)
    replicas = {
        (topic.name, one.index): one.replicas for topic in topics for one in topic.partitions
    }
    if as_json:
        rows: list[dict[str, Any]] = [
            {
                "topic": place[0],
                "partition": place[1],
                "status": status.value,
                "replicas": list(replicas.get(place, ())),
            }
            for place, status in found.items()
        ]
        print(json.dumps({"partitions": rows, "throttles_cleared": cleared}))
    else:
        print("Status of partition reassignment:")
        for place, status in found.items():
            print(status_line(place, status, replicas.get(place, ()), target[place]))
        if cleared:
            print("\nThrottles of brokers and topics were removed.")
    return OK if set(found.values()) <= {Status.COMPLETED} else PROBLEM


def cancel(bootstrap: str, target: Assignment, *, preserve_throttles: bool, as_json: bool) -> None:
    with Brokers(bootstrap) as brokers:
        going = [place for place in _ongoing(brokers) if place in target]
        if going:
            _alter(brokers, dict.fromkeys(going))
        if not preserve_throttles:
            _speed_up(brokers, target)
    if as_json:
        print(json.dumps({"cancelled": _names(going)}))
    elif going:
        print(f"Successfully cancelled partition reassignments for: {','.join(_names(going))}")
    else:
        print("None of the specified partition moves are active.")


def print_ongoing(bootstrap: str, *, as_json: bool) -> None:
    with Brokers(bootstrap) as brokers:
        going = _ongoing(brokers)
        topics = describe_topics(brokers.any, list(by_topic(going)))
    rows = [
        (f"{topic.name}-{one.index}", one)
        for topic in topics
        for one in topic.partitions
        if (topic.name, one.index) in going
    ]
    if as_json:
        objects = [
            {
                "partition": name,
                "replicas": list(one.replicas),
                "adding": list(one.adding),
                "removing": list(one.removing),
            }
            for name, one in rows
        ]
        print(json.dumps(objects))
    elif not rows:
        print("No partition reassignments found.")
    else:
        print("Current partition reassignments:")
        for name, one in rows:
            adding, removing = _ids(one.adding), _ids(one.removing)
            print(
                f"{name}: replicas: {_ids(one.replicas)}. adding: {adding}. removing: {removing}."
            )


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "-"
