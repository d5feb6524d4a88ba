"""The judge of a part of a history; ``tidelog pipeline verify`` runs it on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tidelog.pipeline.jobs.failures import WrongJob
from tidelog.pipeline.jobs.verify import UNJUDGED, Finding
from tidelog.pipeline.positions import Place


def judge_part(
    frame: Sequence[str], lines: Iterable[str], places: frozenset[Place] | None
) -> list[Finding]:
    """What the checkers say of these operations, of which only records of ``places`` count."""
    from tidelog.chaos.checkers import Anomaly, Facts, Kind, check_facts, unjudged_writes
    from tidelog.chaos.history import Event, Operation, RunEnd, RunHeader, gather
    from tidelog.chaos.history_lines import BadLine, decode_event

    def decoded(line: str) -> Event:
        try:
            return decode_event(line)
        except BadLine as error:
            raise WrongJob(f"{line[:80]!r} is no line of a history: {error}") from None

    def events() -> Iterator[Event]:
        for line in lines:
            event = decoded(line)
            if isinstance(event, Operation) and event.seen and places is not None:
                here = tuple(one for one in event.seen if (one.topic, one.partition) in places)
                event = replace(event, seen=here)
            yield event
        for line in frame[1:]:
            end = decoded(line)
            # The files of replicas are told once, and not by every part.
            is_part = isinstance(end, RunEnd) and places is not None
            yield replace(end, divergences=()) if is_part and isinstance(end, RunEnd) else end

    header = decoded(frame[0])
    if not isinstance(header, RunHeader):
        raise WrongJob(f"{frame[0][:80]!r} does not say what ran")
    facts = Facts(gather(header, events()))

    def finding(one: Anomaly) -> Finding:
        return one.kind.value, one.text, one.topic, one.partition, one.offset

    found = [finding(one) for one in check_facts(facts)]
    assert all(kind != UNJUDGED for kind in (one.value for one in Kind))
    unjudged = sum(unjudged_writes(facts).values())
    return [*found, (UNJUDGED, "", "", -1, unjudged)] if unjudged else found
