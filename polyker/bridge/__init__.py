"""Bridges to frameworks: operators inside their compilers, with their derivatives, batching and sharding."""
