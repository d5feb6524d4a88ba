"""``python -m tidelog.storage.cleaner.worker``: the heavy half of passes, for the node that asks.

One pass at a time. Nothing of a pass that was not taken outlives it: when the next one begins, when
the node ends it, or when the node is gone.
"""

from __future__ import annotations

import gc
import sys
from typing import assert_never

from tidelog.kernel.ports import Disk, Steps
from tidelog.storage.cleaner.pass_messages import (
    Answer,
    Begin,
    End,
    Failed,
    Work,
    Worked,
    decode_question,
    encode_answer,
)
from tidelog.storage.cleaner.rewriting import Rewriting


class CleanerWorker:
    """Answers the questions of ``pass_messages``."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._rewriting: Rewriting | None = None
        self._steps: Steps[int] | None = None
        """What of the work on the next segment is left."""

    def answer(self, question: bytes) -> bytes:
        return encode_answer(self._answer(question))

    def _answer(self, question: bytes) -> Answer:
        match decode_question(question):
            case Begin(inputs):
                self._let_go()
                self._rewriting = Rewriting(self._disk, inputs)
                return self._worked(has_more=True)
            case Work(most_bytes):
                return self._work(most_bytes)
            case End():
                answer = self._worked(has_more=False)
                self._let_go()
                return answer
            case other:
                assert_never(other)

    def _work(self, most_bytes: float) -> Answer:
        rewriting = self._begun()
        before = rewriting.report.bytes_moved
        if self._steps is None:
            self._steps = rewriting.work()
        try:
            while rewriting.report.bytes_moved - before < most_bytes:
                next(self._steps)
        except StopIteration as stop:
            self._steps = None
            return self._worked(has_more=False, replaced=stop.value)
        except OSError as error:
            self._steps = None
            return Failed(error.errno or 0, str(error))
        return self._worked(has_more=True)

    def _begun(self) -> Rewriting:
        if self._rewriting is None:
            raise ValueError("no pass has begun")
        return self._rewriting

    def _worked(self, *, has_more: bool, replaced: int = 0) -> Worked:
        report = {} if self._rewriting is None else self._rewriting.report.as_fields()
        return Worked(has_more, replaced, report)

    def _let_go(self) -> None:
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        if self._rewriting is not None:
            self._rewriting.discard()
            self._rewriting = None


def look_for_cycles_less_often() -> None:
    """A pass makes many small objects and no cycles; to look for them takes a tenth of its time."""
    gc.set_threshold(200_000, 20, 100)


def main() -> int:
    from tidelog.kernel.real import OsDisk
    from tidelog.kernel.real.worker_process import serve

    look_for_cycles_less_often()
    serve(CleanerWorker(OsDisk()).answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
