"""From logits to tokens: one graph for all rows of a batch."""
