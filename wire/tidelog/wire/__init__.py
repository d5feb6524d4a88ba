"""The bytes that Kafka clients, brokers and files exchange."""
