"""Trained models: run folders, predictions, ensembles, calibration and files of predictions."""
