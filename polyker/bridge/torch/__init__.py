"""Use polyker in torch: operators with gradients, and a backend of torch.compile."""

from __future__ import annotations

from polyker.errors.base import failure
from polyker.errors.torch import NO_TORCH

try:
    import torch as torch
except ImportError as error:
    raise failure(NO_TORCH) from error

from polyker.bridge.torch.custom import TorchOperator, op
from polyker.bridge.torch.einsums import einsum
from polyker.bridge.torch.graphs import backend
from polyker.bridge.torch.reports import CompileReport, report

__all__ = ["CompileReport", "TorchOperator", "backend", "einsum", "op", "report"]
