"""`python -m svdno`, the same as `svdno`."""

from svdno.cli import main

main()
