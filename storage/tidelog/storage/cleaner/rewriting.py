"""The heavy half of a pass from the first key to the last new segment, without the log.

It knows only what it was told when it began (``PassInputs``) and the files it opens itself. So it
runs wherever its owner likes: as steps in a thread, in the simulation, or in a process of its own
(``worker``). One new segment is made at a time, under names of unfinished work, and nothing more is
done until the owner has taken it: so no more than one is ever there twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.kernel.ports import Disk, Steps
from tidelog.storage.atomic import DISK_FULL
from tidelog.storage.cleaner.engine import CleaningAborted, CleaningPass, PassInputs, Source
from tidelog.storage.cleaner.output import CleanedOutput
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.index import CorruptIndex
from tidelog.wire.errors import MalformedBatch


class Rewriting:
    """``work`` to its end, again and again until it returns 0. To go on after it has returned a
    segment means that the owner has taken that."""

    def __init__(self, disk: Disk, inputs: PassInputs) -> None:
        self._disk = disk
        self._inputs = inputs
        self._pass = CleaningPass(disk, inputs)
        self._groups: list[Sequence[Source]] | None = None
        self._output: CleanedOutput | None = None

    @property
    def report(self) -> CleaningReport:
        return self._pass.report

    def abort(self, reason: str) -> None:
        """Stop at the next step."""
        self._pass.abort_reason = self._pass.abort_reason or reason

    def work(self) -> Steps[int]:
        """Up to the next complete segment: how many old ones it replaces; 0 if there is none.

        An ``OSError`` that is not a full disk is the directory's end and comes through.
        """
        is_done = False
        try:
            replaced = yield from self._next_output()
            is_done = True
            return replaced
        except CleaningAborted as error:
            self._end(Outcome.ABORTED, str(error))
        except FileNotFoundError as error:
            self._end(Outcome.ABORTED, f"a segment is gone: {error}")
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._end(Outcome.DISK_FULL, str(error))
        except (MalformedBatch, CorruptIndex, ValueError) as error:
            self._end(Outcome.UNCLEANABLE, str(error))
        finally:
            if not is_done:
                self.discard()
        return 0

    def _next_output(self) -> Steps[int]:
        if self.report.outcome is not None:
            return 0
        if self._groups is None:
            yield from self._pass.map_keys()
            self._groups = self._pass.groups()
        elif self._output is not None:
            self._output = None
            del self._groups[0]
        if not self._groups:
            self._end(Outcome.CLEANED)
            return 0
        group = self._groups[0]
        self._pass.check_abort()
        yield
        modified = self._disk.stat(group[-1].path)
        base_offset = group[0].facts.base_offset
        output = CleanedOutput(self._disk, self._inputs.directory, base_offset, self._inputs.config)
        self._output = output
        yield from self._pass.rewrite(group, output)
        modified_ms = self._inputs.now_ms if modified is None else modified.mtime_ms
        yield from output.finish(modified_ms)
        self._pass.check_abort()
        return len(group)

    def _end(self, outcome: Outcome, reason: str = "") -> None:
        self.report.outcome = outcome
        self.report.reason = reason
        if outcome is Outcome.CLEANED:
            self.report.clean_point = self._pass.end_offset

    def discard(self) -> None:
        """Remove what was not taken."""
        if self._output is not None:
            self._output.discard()
            self._output = None
