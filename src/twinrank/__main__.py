"""python -m twinrank."""

from twinrank.cli import main

main()
