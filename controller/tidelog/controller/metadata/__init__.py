"""What the cluster knows about itself, as records and as the image they build.

The metadata log is the only truth. An image is what replaying the log up to an offset gives; it
is immutable, so brokers and controllers hand it around freely, and a record's cost does not grow
with the cluster because every map in it is a HAMT that shares structure with its predecessor.
"""
