"""Benchmarks: ``python -m benchmarks`` runs all, ``python -m benchmarks.iss_vs_ort`` one with options."""
