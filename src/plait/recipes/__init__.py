"""Whole runs as TOML files, one each."""
