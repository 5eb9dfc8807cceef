"""A run becomes a folder that other programs answer with: a file per format, one way in."""
