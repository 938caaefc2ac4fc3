"""What rewrites share: fresh names, matching, accumulators, groups of terms, ranges of values."""
