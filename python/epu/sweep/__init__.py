"""Hardware sweep: one model on many machines; ``run_sweep`` measures, ``table`` and ``pareto_figure`` show."""

from epu.sweep.points import Point, grid_of
from epu.sweep.runner import run_sweep

__all__ = ["Point", "grid_of", "run_sweep"]
