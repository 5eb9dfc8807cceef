"""`python -m plait` is the same as `plait`."""

from plait.cli import main

main()
