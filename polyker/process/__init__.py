"""The process: its compile lock, forks and exit, uninterruptible jobs, and files that are written whole."""
