"""The prefix cache in memory: which prompts' caches are kept, found again and given up."""
