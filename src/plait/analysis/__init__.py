"""Analyses of data and runs: checks, errors, bias audits, explanations and reports."""
