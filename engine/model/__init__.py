"""The model: loading, what it is, and what of it can be batched."""
