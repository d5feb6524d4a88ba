"""Requests read by hand: the two that carry the data.

A Produce request costs the same for any size, because its records stay where they are; kio copies
them (30 µs for a mebibyte). A Fetch request takes as long as kio with the walk that kio needs
(``shapes``), and comes in the units and ids of the rest of the system.

They are tuples rather than dataclasses because a frozen dataclass takes three times as long to
build, and one is built for every partition of every request.
"""
