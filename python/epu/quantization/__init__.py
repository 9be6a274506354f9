"""The parts of ``epu.quantize``: sessions, calibration samples, optimisation, what stays float, the quantiser."""
