"""The C library's allocator, told what a node does with memory."""

from __future__ import annotations

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1  # the M_* constants of glibc's malloc.h
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 64 << 20
_LARGEST_KEPT_BYTES: Final = 16 << 20


def keep_large_blocks() -> None:
    """Batches and messages of up to some megabytes come and go all the time.

    By default glibc gives them back to the system as soon as a few are free, and the system has to
    clear the next ones: a tenth of the time of a node that replicates. Other libraries are left as
    they are.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
