"""Catalogue of the schedule's and the gathers' errors (PK5xx); legality's rows stand in polyker.schedule.legality."""

from __future__ import annotations

from polyker.errors.base import GatherError, register

GATHERED = register(
    "PK510",
    GatherError,
    "a gathered index for dimension {dimension} of `{tensor}` lies outside of it",
    "gathered indices count from 0 and are below the extent; negative ones are not taken from the end",
)
