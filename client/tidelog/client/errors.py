"""What can go wrong with a client, each with a code, a name and whether trying again may help.

Codes from 0 on are those of the Kafka protocol and come from a broker; codes below −1 are
librdkafka's own and say what went wrong on this side. ``retriable`` follows Kafka's table for the
first and the small table here for the second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tidelog.kernel.errors import ErrorCode

INVALID_ARGUMENT: Final = -186
WRONG_STATE: Final = -172
TIMED_OUT: Final = -185
MESSAGE_TIMED_OUT: Final = -192
QUEUE_FULL: Final = -184
FENCED: Final = -144
FATAL: Final = -150
NO_OFFSET: Final = -168
AUTO_OFFSET_RESET: Final = -140
KEY_SERIALIZATION: Final = -162
VALUE_SERIALIZATION: Final = -161
KEY_DESERIALIZATION: Final = -160
VALUE_DESERIALIZATION: Final = -159
UNKNOWN_PARTITION: Final = -190
UNKNOWN_TOPIC: Final = -188
WAIT_COORDINATOR: Final = -180
"""For as long as a session lasts; then whatever waited for it is given up, and was not sent."""

_LOCAL_RETRIABLE: Final = frozenset({
    -195,  # _TRANSPORT
    -193,  # _RESOLVE
    MESSAGE_TIMED_OUT,
    -187,  # _ALL_BROKERS_DOWN
    TIMED_OUT,
    QUEUE_FULL,
    -182,  # _NODE_UPDATE
    WAIT_COORDINATOR,
    -178,  # _IN_PROGRESS
    -177,  # _PREV_IN_PROGRESS
    -166,  # _TIMED_OUT_QUEUE
    -164,  # _WAIT_CACHE
    -153,  # _RETRY
})  # fmt: skip
_FENCING: Final = frozenset(
    {
        FENCED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
_SENT_IN_VAIN: Final = frozenset({TIMED_OUT, MESSAGE_TIMED_OUT, -166, ErrorCode.REQUEST_TIMED_OUT})
_TIME_OUTS: Final = _SENT_IN_VAIN | {WAIT_COORDINATOR}


class RdError(Protocol):
    """An error of librdkafka, as confluent_kafka.KafkaError has it."""

    def code(self) -> int: ...

    def name(self) -> str: ...

    def str(self) -> str: ...

    def fatal(self) -> bool: ...

    def retriable(self) -> bool: ...

    def txn_requires_abort(self) -> bool: ...


class ClientError(Exception):
    """Everything a client raises on purpose."""

    code: int = INVALID_ARGUMENT
    name: str = "_INVALID_ARG"
    retriable: bool = False
    """Whether the same call may succeed later, with nothing changed."""


class ConfigError(ClientError, ValueError):
    """A setting that does not exist, has no such value, or contradicts another."""

    def __init__(self, message: str, setting: str, nearest: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.setting = setting
        self.nearest = tuple(nearest)
        """Names that look like the one that was given, best first."""


class WrongType(ClientError, TypeError):
    """A value of a type the client, or the serializer it was given, does not take."""


class ClientClosed(ClientError, RuntimeError):
    """The client was closed before, or while, it was asked for something."""

    code = WRONG_STATE
    name = "_STATE"


class WrongState(ClientError, RuntimeError):
    """Something that the client cannot do now; the text says what must come first."""

    code = WRONG_STATE
    name = "_STATE"


class WrongEventLoop(WrongState):
    """An asynchronous client belongs to the event loop it was first used on."""


class SerializationFailed(ClientError):
    """A serializer could not make bytes of a key or a value."""

    code = VALUE_SERIALIZATION
    name = "_VALUE_SERIALIZATION"


class DeserializationFailed(ClientError):
    """A record whose key or value cannot be read. ``seek`` past it to go on."""

    code = VALUE_DESERIALIZATION
    name = "_VALUE_DESERIALIZATION"

    def __init__(self, message: str, topic: str, partition: int, offset: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class RequestFailed(ClientError):
    """A broker refused, or librdkafka gave up; ``code`` and ``name`` say which and why."""

    def __init__(
        self, message: str, code: int, name: str, *, retriable: bool, fatal: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.retriable = retriable
        self.fatal = fatal
        """The client is of no more use: close it and make another."""

    @property
    def outcome_unknown(self) -> bool:
        """It may have been carried out although nobody said so."""
        return self.code in _SENT_IN_VAIN


class TimedOut(RequestFailed, TimeoutError):
    """Nothing came back in time; the text says how long it was waited, and for whom."""


class Fenced(RequestFailed):
    """Another client took over this one's transactional id, or its group instance id."""


class MustAbort(RequestFailed):
    """The transaction cannot be committed any more; after an abort the next one may be."""


def is_retriable(code: int) -> bool:
    """Whether an error says that trying again may help."""
    if code < ErrorCode.UNKNOWN_SERVER_ERROR:
        return code in _LOCAL_RETRIABLE
    return code in set(ErrorCode) and ErrorCode(code).retriable


def error_name(error: RdError) -> str:
    """Kafka's name of a broker's error; librdkafka abbreviates some."""
    code = error.code()
    return ErrorCode(code).name if code in set(ErrorCode) else error.name()


def request_failed(
    error: RdError, what: str, tried: Callable[[], str] = lambda: ""
) -> RequestFailed:
    """The exception for an error of librdkafka. ``what`` was asked, ``tried`` says of whom."""
    code, name = error.code(), error_name(error)
    is_timeout = code in _TIME_OUTS
    text = f"{what}: {error.str()} ({name})"
    if (is_timeout or code < ErrorCode.UNKNOWN_SERVER_ERROR) and (words := tried()):
        text = f"{text}; {words}"
    kind: type[RequestFailed] = RequestFailed
    if code in _FENCING:
        kind = Fenced
    elif error.txn_requires_abort():
        kind = MustAbort
    elif is_timeout:
        kind = TimedOut
    retriable = not error.fatal() and (error.retriable() or is_retriable(code))
    return kind(text, code, name, retriable=retriable, fatal=error.fatal())


def from_exception(
    exception: Exception, what: str, tried: Callable[[], str] = lambda: ""
) -> RequestFailed:
    """Of a confluent_kafka.KafkaException, whose first argument is the error."""
    return request_failed(exception.args[0], what, tried)


def not_made(exception: Exception, what: str) -> ClientError:
    """What librdkafka says when it refuses to be made: mostly a setting, by its own name."""
    error: RdError = exception.args[0]
    if error.code() != INVALID_ARGUMENT:
        return request_failed(error, what)
    named = re.search(r'property "([^"]+)"', error.str())
    return ConfigError(f"{what}: {error.str()}", named.group(1) if named else "")


def timed_out(what: str, waited_s: float, tried: str) -> TimedOut:
    text = f"{what}: not within {waited_s:g} s; {tried}"
    return TimedOut(text, TIMED_OUT, "_TIMED_OUT", retriable=True)
