"""Rewrites of time loops: blocks of steps, double buffers, delayed updates."""
