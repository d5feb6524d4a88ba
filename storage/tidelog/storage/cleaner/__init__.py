"""Compaction of one partition's log: of each key, the newest record stays (docs/COMPACTION.md).

``plan`` decides (pure), ``cleaning`` is one pass over one log, ``shell`` runs it on an event loop.
The rest is in the order of the work: what is known of a log (``facts``), reading (``chunks``,
``columns``), the keys and their newest offsets (``digests``, ``offset_map``), what stays
(``transactions``, ``filtering``), and what is written (``rebuilding``, ``output``). Which logs may
not be touched is kept in ``states``, how far each one is clean in ``clean_points``.
"""
