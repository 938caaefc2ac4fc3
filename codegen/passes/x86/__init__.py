"""Passes over the Kernel IR for processors whose ports or extrema ask for another form."""
