"""Operators that ONNX defines by others, spelt out."""

from __future__ import annotations

import onnx
import onnx.inliner

FOLDED_WHOLE = ("Range",)  # ONNX spells it out as a Loop


def expand_functions(model: onnx.ModelProto, every: bool = False) -> onnx.ModelProto:
    """Operators that ONNX defines by others in terms of those: ``every`` one, or those that the importer does not know."""
    from epu.relay_passes.import_onnx import CONVERTERS

    known = frozenset() if every else frozenset(CONVERTERS)
    if all(node.op_type in known for node in model.graph.node):
        return model
    kept = [("", op) for op in (*known, *FOLDED_WHOLE)]
    spelt = onnx.shape_inference.infer_shapes(with_default_attributes(model), data_prop=True)
    try:
        return onnx.inliner.inline_selected_functions(spelt, kept, exclude=True, inline_schema_functions=True)
    except RuntimeError:  # the inliner stops at an operand whose type inference does not find, or that is left out
        return model


def with_default_attributes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose nodes spell out their attributes' defaults, which ONNX's inliner does not know."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for node in result.graph.node:
        if onnx.defs.has(node.op_type, node.domain):
            schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
            given = {attribute.name for attribute in node.attribute}
            defaults = [each.default_value for name, each in schema.attributes.items() if name not in given]
            node.attribute.extend(each for each in defaults if each.name)
    return result
