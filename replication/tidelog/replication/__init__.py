"""Leader and follower replicas of partitions: pure machines, and the shells that drive logs."""
