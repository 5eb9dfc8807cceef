"""Recipes become runs: parts are built, a loop trains them, a folder keeps them."""
