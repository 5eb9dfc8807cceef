"""A task that a run never saw becomes figures: how well its encoder learns it from few examples."""

from plait.fewshot.measuring import FewShot, Figures, draw_rows, measure_few_shot, read_task

__all__ = ["FewShot", "Figures", "draw_rows", "measure_few_shot", "read_task"]
