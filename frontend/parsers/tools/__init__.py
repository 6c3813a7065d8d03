"""Tool-call formats: file name = registry key = the name in `--tool-parser`."""
