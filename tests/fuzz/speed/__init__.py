"""An oracle for speed: random programs of sizes that people use, each timed against other ways to the same values."""
