"""Run every benchmark with its defaults."""

from benchmarks.iss_vs_ort import command

command()
