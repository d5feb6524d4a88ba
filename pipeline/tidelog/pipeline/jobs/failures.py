"""What a pipeline tells the person who runs it, beside the errors of the sources."""

from __future__ import annotations

import re
from typing import Final

from tidelog.pipeline.errors import PipelineError


class LakeDamaged(PipelineError):
    """The lake's own files contradict each other, or what they name is not there."""


class SchemaDrift(PipelineError):
    """Files of the lake, or values of a topic, do not have the columns that they should."""


class ConcurrentWriter(PipelineError):
    """Somebody else archived the same partitions meanwhile."""


class WrongJob(PipelineError):
    """What was asked for cannot be done, whatever the data is."""


_OWN: Final = re.compile(r"tidelog\.pipeline\.[\w.]+\.(\w+): (.+)")


def told_by(error: BaseException) -> str | None:
    """What one of our own errors said, however deep Spark has packed it; None: it is not ours.

    Errors on executors and in Spark's planning process come back as the text of a traceback.
    """
    if isinstance(error, PipelineError):
        return str(error)
    found = _OWN.findall(str(error))
    return found[-1][1].strip() if found else None
