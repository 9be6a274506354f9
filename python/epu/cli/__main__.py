"""``python -m epu.cli`` is ``epu``."""

from epu.cli import main

main()
