"""What users call: operators, kernels, schedules to edit, `einsum`, and how a call finds its kernel."""
