"""The controller quorum: who leads, which replicas count, what exists.

``metadata`` holds the records of the metadata log and the image they build, ``decisions`` turns
requests and failures into records, ``liveness`` says which brokers are gone, ``raft`` agrees on
the order of it all.
"""
