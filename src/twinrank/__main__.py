"""Run the command line with `python -m twinrank`."""

from twinrank.cli import main

main()
