"""Schedules as people edit them: in their own names, step by step, each step proven."""
