"""Calibrate a run on its predictions for dev, or for training rows that it left out."""
