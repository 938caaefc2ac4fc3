"""What a kernel will do, said before it runs: operations, bytes, the floor that the machine sets, and the decisions."""
