"""Pipelines that people need, each a function that takes a session and says what it did.

``tidelog pipeline …`` is the same from a shell. Everything runs on the session that is handed in:
local, or that of a cluster. Nothing here is a Python function over records, so executors need no
more than the sources and the sink do.
"""
