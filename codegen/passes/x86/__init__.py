"""Passes over the Kernel IR for processors whose ports or extrema need another form."""
