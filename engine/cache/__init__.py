"""KV caches in the batch: one kind a file, one registry."""
