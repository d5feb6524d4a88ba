"""What a node tells over HTTP: metrics, health, and what it knows, as JSON."""
