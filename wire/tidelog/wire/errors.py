"""What can be wrong with a record batch, each with the error code its sender is told.

These exceptions are the sender's fault (or the disk's), never ours: misuse of this package
raises ``ValueError`` instead, and nothing but a ``MalformedBatch`` comes out of parsing bytes.
"""

from __future__ import annotations

from typing import ClassVar

from tidelog.kernel.errors import ErrorCode


class MalformedBatch(Exception):
    """Base of all of them; ``code`` is what a Produce response carries."""

    code: ClassVar[ErrorCode] = ErrorCode.CORRUPT_MESSAGE


class CorruptBatch(MalformedBatch):
    """The bytes are not what was written: sizes, magic or checksum do not fit."""

    code: ClassVar[ErrorCode] = ErrorCode.CORRUPT_MESSAGE


class IncompleteBatch(CorruptBatch):
    """The buffer ends inside the batch. A client's cut-off batch is INVALID_RECORD (as in 4.3)."""

    code: ClassVar[ErrorCode] = ErrorCode.INVALID_RECORD


class ObsoleteMagic(CorruptBatch):
    """Message formats 0 and 1, which Kafka 4 takes from nobody and calls INVALID_RECORD."""

    code: ClassVar[ErrorCode] = ErrorCode.INVALID_RECORD


class InvalidRecord(MalformedBatch):
    """The checksum is right, so somebody wrote exactly these records, and they make no sense."""

    code: ClassVar[ErrorCode] = ErrorCode.INVALID_RECORD


class UnsupportedCodec(MalformedBatch):
    """A codec number that names no codec."""

    code: ClassVar[ErrorCode] = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class DecompressedTooLarge(MalformedBatch):
    """The records grow beyond what we are ready to hold in memory.

    MESSAGE_TOO_LARGE makes a producer split its batch, which is what helps an honest one.
    """

    code: ClassVar[ErrorCode] = ErrorCode.MESSAGE_TOO_LARGE
