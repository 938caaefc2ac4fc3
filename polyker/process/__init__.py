"""What a process has one of: the compile lock, its behaviour at forks and exit, and uninterruptible jobs."""
