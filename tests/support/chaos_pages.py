"""A run as its report would show it: writes at a steady pace, faults that hold them up."""

from __future__ import annotations

from chaos_scripts import OK, UNKNOWN, header

from tidelog.chaos.history import (
    FaultBand,
    History,
    Note,
    Operation,
    Outcome,
    PartitionState,
    Record,
    RunEnd,
    Sample,
    Verb,
)

_POLL = 200


def example_run(seconds: int = 60, *, lost: int = 0, every_ms: int = 10) -> History:
    """Every ten seconds a fault holds up partition 0 for 700 ms; ``lost`` records are lost."""
    end_ms = seconds * 1000.0
    faults = _faults(seconds)
    operations = _appends(seconds, faults, every_ms)
    written = [one for one in operations if one.outcome is OK]
    gone = {one.number for one in written[100 : 100 + lost]}
    operations += _final_reads(written, gone, end_ms, len(operations))
    return History(
        header(),
        tuple(operations),
        tuple(faults),
        tuple(_sample(at_ms * 250.0, faults) for at_ms in range(seconds * 4)),
        (Note(1_000.0, "a note"),),
        RunEnd(end_ms + 500, False),
    )


def _faults(seconds: int) -> list[FaultBand]:
    names = ("kill-leader", "cut", "pause")
    return [
        FaultBand(
            number,
            names[number % 3],
            f"node 1, number {number}",
            (1,),
            at * 1000.0,
            at * 1000 + 2000,
        )
        for number, at in enumerate(range(5, seconds - 5, 10), 1)
    ]


def _appends(seconds: int, faults: list[FaultBand], every_ms: int) -> list[Operation]:
    operations = []
    offsets = [0, 0]
    for number in range(seconds * 1000 // every_ms):
        partition, at_ms = number % 2, float(number * every_ms)
        ended_ms: float | None = at_ms + 3 + number % 5
        for fault in faults:
            if partition == 0 and fault.began_ms <= at_ms < fault.began_ms + 700:
                ended_ms = fault.began_ms + 705 + number % 5
        offset: int | None = offsets[partition]
        outcome: Outcome = OK
        if number % 500 == 499:
            ended_ms, offset, outcome = None, None, UNKNOWN
        else:
            offsets[partition] += 1
        append = Operation(
            number + 1, "producer", Verb.APPEND, at_ms, ended_ms, outcome, topic="events",
            partition=partition, offset=offset, key=f"k{partition}", sequence=number // 2,
        )  # fmt: skip
        operations.append(append)
    return operations


def _final_reads(
    written: list[Operation], gone: set[int], end_ms: float, count: int
) -> list[Operation]:
    reads: list[Operation] = []
    for partition in (0, 1):
        here = [one for one in written if one.partition == partition]
        records = [
            Record("events", partition, one.offset or 0, one.key, one.sequence)
            for one in here
            if one.number not in gone
        ]
        for at in range(0, len(records), _POLL):
            number, seen = count + len(reads) + 1, tuple(records[at : at + _POLL])
            poll = Operation(number, "final-reader", Verb.POLL, end_ms, end_ms + 1, OK, seen=seen)
            reads.append(poll)
        read = Operation(
            count + len(reads) + 1, "final-reader", Verb.READ_TO_END, end_ms, end_ms + 400, OK,
            topic="events", partition=partition, offset=len(here),
        )  # fmt: skip
        reads.append(read)
    return reads


def _sample(at_ms: float, faults: list[FaultBand]) -> Sample:
    acting = [f for f in faults if f.began_ms <= at_ms < (f.ended_ms or 0)]
    begun = sum(1 for f in faults if f.began_ms <= at_ms)
    leader: int | None = begun % 2 + 1
    if acting and at_ms < acting[0].began_ms + 700:
        leader = None
    isr = (2, 3) if acting else (1, 2, 3)
    alive = (2, 3) if acting else (1, 2, 3)
    states = (
        PartitionState("events", 0, leader, begun, (1, 2, 3), isr),
        PartitionState("events", 1, 3, 0, (1, 2, 3), isr),
    )
    return Sample(at_ms, 2, alive, states)
