"""What the node and the process that does its cleaning tell each other. Pure.

A pass begins with all that it has to know (``PassInputs``). Then the node asks for some more work
again and again; to ask after a segment was finished means that it was taken. Every answer carries
the whole report, so that it is the node's own report that grows, wherever the work is done.

Both ends are the same code at the same time: there are no versions. Numbers, texts and bytes in
lists (msgpack); what a list stands for is told by its place.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

import msgpack  # type: ignore[import-untyped]

from tidelog.kernel.ids import (
    NO_TIMESTAMP,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.cleaner.engine import LastOfProducer, PassInputs, Source
from tidelog.storage.cleaner.plan import SegmentFacts
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.txn_index import AbortedTxn

_CONFIG_NAMES: Final = tuple(field.name for field in fields(TopicConfig))
_TXN_NAMES: Final = tuple(field.name for field in fields(AbortedTxn))
_BEGIN, _WORK, _END = range(3)
_WORKED, _FAILED = range(2)


@dataclass(frozen=True, slots=True)
class Begin:
    """Forget whatever there was; answered by ``Worked``."""

    inputs: PassInputs


@dataclass(frozen=True, slots=True)
class Work:
    """Go on until a segment is complete, all is done, or so many bytes were moved."""

    most_bytes: float


@dataclass(frozen=True, slots=True)
class End:
    """Let the pass go and remove what was not taken; answered by ``Worked``."""


Question: TypeAlias = Begin | Work | End


@dataclass(frozen=True, slots=True)
class Worked:
    has_more: bool
    """The bytes that were allowed are used up."""
    replaced: int
    """A segment is complete that stands for so many old ones."""
    report: dict[str, object]


@dataclass(frozen=True, slots=True)
class Failed:
    """The disk is broken: an ``OSError`` that is not a full disk."""

    errno: int
    text: str


Answer: TypeAlias = Worked | Failed


def encode_question(question: Question) -> bytes:
    match question:
        case Begin(inputs):
            return _packed([_BEGIN, _listed(inputs)])
        case Work(most_bytes):
            return _packed([_WORK, most_bytes])
        case End():
            return _packed([_END])


def decode_question(data: bytes) -> Question:
    match _unpacked(data):
        case [0, listed]:
            return Begin(_inputs(listed))
        case [1, most_bytes]:
            return Work(most_bytes)
        case [2]:
            return End()
        case other:
            raise ValueError(f"no question to a cleaner: {other!r}")


def encode_answer(answer: Answer) -> bytes:
    match answer:
        case Worked(has_more, replaced, report):
            return _packed([_WORKED, has_more, replaced, report])
        case Failed(errno, text):
            return _packed([_FAILED, errno, text])


def decode_answer(data: bytes) -> Answer:
    match _unpacked(data):
        case [0, has_more, replaced, report]:
            return Worked(has_more, replaced, report)
        case [1, errno, text]:
            return Failed(errno, text)
        case other:
            raise ValueError(f"no answer of a cleaner: {other!r}")


def _packed(listed: list[Any]) -> bytes:
    packed: bytes = msgpack.packb(listed)
    return packed


def _unpacked(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False, use_list=True)


def _listed(inputs: PassInputs) -> list[Any]:
    settings = inputs.settings
    return [
        [inputs.tp.topic, inputs.tp.partition],
        inputs.directory,
        [getattr(inputs.config, name) for name in _CONFIG_NAMES],
        [
            settings.map_bytes,
            settings.load_factor,
            settings.chunk_bytes,
            settings.max_bytes_per_second,
        ],
        inputs.now_ms,
        [inputs.first_dirty, inputs.first_uncleanable, inputs.clean_floor],
        [_listed_source(source) for source in inputs.sources],
        [[getattr(txn, name) for name in _TXN_NAMES] for txn in inputs.aborted],
        [[pid, last.epoch, last.last_data_offset] for pid, last in inputs.producers.items()],
        inputs.secret,
    ]


def _listed_source(source: Source) -> list[Any]:
    facts = source.facts
    return [
        source.path, source.dirty_position, facts.base_offset, facts.end_offset, facts.size,
        facts.index_bytes, facts.time_index_bytes,
    ]  # fmt: skip


def _inputs(listed: list[Any]) -> PassInputs:
    tp, directory, config, settings, now_ms, offsets, sources, aborted, producers, secret = listed
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in zip(_CONFIG_NAMES, config, strict=True)
    }
    first_dirty, first_uncleanable, clean_floor = offsets
    return PassInputs(
        tp=TopicPartition(tp[0], PartitionIndex(tp[1])),
        directory=directory,
        config=TopicConfig(**values),
        settings=CleanerSettings(*settings),
        now_ms=TimestampMs(now_ms),
        first_dirty=Offset(first_dirty),
        first_uncleanable=Offset(first_uncleanable),
        clean_floor=Offset(clean_floor),
        sources=[_source(*source) for source in sources],
        aborted=[AbortedTxn(*txn) for txn in aborted],
        producers={
            ProducerId(producer_id): LastOfProducer(ProducerEpoch(epoch), last)
            for producer_id, epoch, last in producers
        },
        secret=secret,
    )


def _source(
    path: str,
    dirty_position: int,
    base: int,
    end: int,
    size: int,
    index_bytes: int,
    time_index_bytes: int,
) -> Source:
    facts = SegmentFacts(
        base_offset=Offset(base),
        end_offset=Offset(end),
        size=size,
        is_active=False,
        largest_timestamp=_unknown,  # for plans only, and the plan is made
        first_timestamp=_unknown,
        index_bytes=index_bytes,
        time_index_bytes=time_index_bytes,
    )
    return Source(path, facts, dirty_position)


def _unknown() -> TimestampMs:
    return NO_TIMESTAMP
