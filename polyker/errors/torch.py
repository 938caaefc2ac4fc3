"""Catalogue of what the bridge to torch says (PK93x)."""

from __future__ import annotations

from polyker.errors.base import BackendUnavailable, register

NO_TORCH = register("PK930", BackendUnavailable, "torch is not installed", "install it: pip install polyker[torch]")
