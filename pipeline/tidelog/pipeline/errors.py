"""What a reader or a writer tells the person who runs the job."""

from __future__ import annotations


class PipelineError(Exception):
    """Base of all of them."""


class WrongOptions(PipelineError):
    """An option that is unknown, malformed, refused or in contradiction with another."""


class DataLoss(PipelineError):
    """Records that should be read are not there any more."""


class BrokerUnavailable(PipelineError):
    """Nobody gave an answer for as long as the job is ready to wait."""


class BrokerRefused(PipelineError):
    """A broker answered with an error that trying again does not mend."""


class CorruptData(PipelineError):
    """Bytes that are not what was once written."""


class WrongRows(PipelineError):
    """Columns or rows that cannot be written to a topic."""


class Fenced(PipelineError):
    """Somebody else writes under the same name, and came later."""


class DecidedButLost(PipelineError):
    """A batch was decided to be written, and brokers have given up a part of it since."""


class NotOngoing(PipelineError):
    """A transaction ended the other way, or never had a record."""
