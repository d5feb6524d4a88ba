"""The transaction coordinator's decisions: one machine per transactional id, and their shard."""
