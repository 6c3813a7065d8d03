"""The frontend process: HTTP, text and streaming; stateless, and without MLX."""
