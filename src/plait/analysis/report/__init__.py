"""Seeing what a model learned: runs become answers, figures, pictures and one page."""
