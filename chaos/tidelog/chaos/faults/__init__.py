"""The ways in which a cluster is broken, and when."""
