"""Pictures of schedules: the instances of a statement, in which order they run, and what each waits for."""

from polyker.viz.draw import draw
from polyker.viz.instances import Instances, instances

__all__ = ["Instances", "draw", "instances"]
