"""Vector mathematics as LLVM IR: every function of the notation, for any number of lanes."""
