"""What a call of a compiled kernel needs, as plain data with a JSON form: no program, no schedule, no code."""
