"""`python -m kmcl`."""

from kmcl.cli.app import main

main()
