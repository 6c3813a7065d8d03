"""Service templates and the changelog."""
