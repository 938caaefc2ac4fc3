"""The way from a call in Python to machine code without Python in between."""
