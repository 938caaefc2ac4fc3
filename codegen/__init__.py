"""From schedules to machine code: Kernel IR, lowering, verification, interpretation, LLVM."""
