"""Passes over the typed graph: plain functions Graph -> Graph; ``python/epu/compiler.py`` holds their order."""

from __future__ import annotations

from epu.passes.assign_fraction_bits import assign_fraction_bits
from epu.passes.assign_ranges import assign_ranges
from epu.passes.check_limits import check_limits
from epu.passes.drop_empty import drop_empty
from epu.passes.expand_conv_transpose import expand_conv_transpose
from epu.passes.expand_linear_resize import expand_linear_resize
from epu.passes.expand_zero_points import expand_zero_points
from epu.passes.fold_constants import fold_constants
from epu.passes.recognise_layer_norm import recognise_layer_norm
from epu.passes.recognise_softmax import recognise_softmax
from epu.passes.recognise_unary_tables import recognise_unary_tables
from epu.passes.reduce_last_axes import reduce_last_axes
from epu.passes.remove_identities import remove_identities
from epu.passes.requantise_concats import requantise_concats

__all__ = [
    "assign_fraction_bits",
    "assign_ranges",
    "check_limits",
    "drop_empty",
    "expand_conv_transpose",
    "expand_linear_resize",
    "expand_zero_points",
    "fold_constants",
    "recognise_layer_norm",
    "recognise_softmax",
    "recognise_unary_tables",
    "reduce_last_axes",
    "remove_identities",
    "requantise_concats",
]
