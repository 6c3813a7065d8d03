"""One API dialect a file, each two pure functions: body to Generation, event to frames."""
