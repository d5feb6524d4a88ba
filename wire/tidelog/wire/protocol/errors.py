"""What can be wrong with the bytes of a client.

Nothing else comes out of reading bytes from outside. After either of these the stream cannot be
trusted any more, so the connection is closed without an answer, as Kafka does.
"""

from __future__ import annotations

from enum import Enum


class MalformedRequest(Exception):
    """A header or a body that does not follow its schema, or asks for too much memory."""


class FrameProblem(Enum):
    NEGATIVE = "negative"
    TOO_LARGE = "too large"
    TOO_SMALL = "too small"


class FrameError(MalformedRequest):
    """The size before a frame is not that of a request; often the peer speaks another protocol."""

    def __init__(self, problem: FrameProblem, size: int, limit: int) -> None:
        super().__init__(f"frame size {size} is {problem.value}: allowed are up to {limit} bytes")
        self.problem = problem
        self.size = size
