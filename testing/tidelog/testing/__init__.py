"""A cluster to test against: local processes, and questions to a node."""
