"""A typed client of Kafka clusters, asynchronous and synchronous."""
