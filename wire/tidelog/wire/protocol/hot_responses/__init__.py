"""Responses written by hand: the four that are sent most or are largest.

Each module has the response as tuples of ours, and one function that makes a whole frame of it for
any version: the bytes that kio would write, five to ten times faster, and without copying records.
Fields which a version does not have are left out. They are tuples rather than dataclasses because a
frozen dataclass takes three times as long to build.
"""
