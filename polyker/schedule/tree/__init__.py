"""Schedule trees as data, their form for isl, and finding places in them."""
