"""Reasoning formats: file name = registry key = the name in `--reasoning-parser`."""
