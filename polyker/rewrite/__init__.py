"""Rewrites of the typed program, from TypedProgram to TypedProgram; nothing here knows of schedules."""
