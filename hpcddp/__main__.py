"""`python -m hpcddp`."""

from hpcddp.cli import main

main()
