"""Run every benchmark with its defaults; those whose models are not here say so."""

import click

from benchmarks import iss_vs_ort, real_models

iss_vs_ort.command([], standalone_mode=False)
try:
    real_models.command([], standalone_mode=False)
except click.UsageError as error:
    click.echo(f"benchmarks.real_models: {error.message}", err=True)
