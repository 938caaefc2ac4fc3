"""The campaign of the edge between a user and the library: threads, signals, exits, forks, arguments, foreign arrays."""
