"""What a process has one of: the compile lock, its behaviour at forks and at the end, and jobs that signals do not interrupt."""
