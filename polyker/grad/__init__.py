"""Gradients: from a program to the program of its derivatives, by reverse and by forward mode."""
