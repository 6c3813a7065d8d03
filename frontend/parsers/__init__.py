"""Tool-call and reasoning formats: one a file, one registry; streaming only, a whole reply feeds all."""
