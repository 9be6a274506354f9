"""Relay function → typed graph (``epu.graph``)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from epu.graph import Float, Graph, Integer, Node, Quantized, Tensor, TensorType
from epu.relay_passes.draft import Draft, Use
from epu.relay_passes.recognise import Recognised, recognise
from epu.relay_passes.relay_view import Const, Operand, Source, View, view_function
from epu.relay_passes.tvm_relay import relay, tvm
from epu.simulator.errors import UserError

Names = dict[tuple[str, int], str]


def to_graph(source: Any, name: str, tensor_names: Names | None = None) -> Graph:
    """Typed graph of a Relay function or of a module's ``main``.

    ``tensor_names`` maps (node name, output index) to ONNX tensor names (``import_onnx`` returns it) and fixes the
    node order to ONNX's. Raises ``UnsupportedNode`` for a call no operator row takes.
    """
    function = typed_main(source)
    view = view_function(function)
    found = recognise(view)
    for refusal in found.refusals.values():
        raise refusal
    return build_graph(view, found, name, tensor_names or {})


def typed_main(source: Any) -> Any:
    """The function of ``source`` (or its ``main``), type-checked."""
    if isinstance(source, relay.Function):
        if _is_typed(source.body):
            return source
        source = tvm.IRModule.from_expr(source)
    return relay.transform.InferType()(source)["main"]


def _is_typed(expr: Any) -> bool:
    try:
        return expr.checked_type is not None
    except ValueError:
        return False


def build_graph(view: View, found: Recognised, name: str, tensor_names: Names) -> Graph:
    """Typed graph of recognised drafts."""
    return _Builder(view, found.drafts, name, tensor_names).build()


def draft_names(drafts: list[Draft]) -> dict[Draft, str]:
    """Node name of each draft: its span, where the last of a span owns the name and the others add their op."""
    groups: dict[str, list[Draft]] = defaultdict(list)
    for draft in drafts:
        groups[draft.root.span].append(draft)
    names: dict[Draft, str] = {}
    for index, draft in enumerate(groups.pop("", [])):
        names[draft] = f"op_{index}"
    for span, group in groups.items():
        names[group[-1]] = span
        names.update({draft: f"{span}:{draft.op}_{index}" for index, draft in enumerate(group[:-1])})
    return names


class _Builder:
    """Names and types for drafts: one pass backwards for what readers want, one forwards to make nodes."""

    def __init__(self, view: View, drafts: list[Draft], name: str, tensor_names: Names) -> None:
        self.view = view
        self.tensor_names = tensor_names
        self.drafts = self._ordered(drafts)
        self.names = draft_names(self.drafts)
        self.owners = {(draft.root.span, draft.root.output): draft for draft in self.drafts}
        self.wants = self._wanted()
        self.graph = Graph(name, [], {}, [], [])
        self.made: dict[Operand, str] = {}
        self.constants: dict[Any, str] = {}

    def build(self) -> Graph:
        for source in self.view.inputs:
            self.made[source] = self._add(Tensor(source.name, source.shape, self._source_type(source)))
            self.graph.inputs.append(self.made[source])
        for draft in self.drafts:
            self._node(draft)
        self.graph.outputs = [self._input(Use(operand)) for operand in self.view.outputs]
        return self.graph

    def _ordered(self, drafts: list[Draft]) -> list[Draft]:
        """ONNX order where it is known for every node, else the order given."""
        place = {node: index for index, (node, _) in enumerate(self.tensor_names)}
        if not all(draft.root.span in place for draft in drafts if draft.root.origin is not None):
            return drafts
        key = {draft: place.get(draft.root.span, -1) for draft in drafts}
        for draft, reader in zip(drafts[::-1][1:], drafts[::-1]):
            key[draft] = key[reader] if key[draft] < 0 else key[draft]
        return sorted(drafts, key=lambda draft: key[draft])

    # --- types

    def _wanted(self) -> dict[Operand, Quantized]:
        """Quantisation each operand is read with; operations that keep it pass it on to their inputs."""
        wants: dict[Operand, Quantized] = {}
        for draft in reversed(self.drafts):
            passed = wants.get(draft.root) if draft.keeps_quantization else None
            for use in draft.inputs:
                self._want(wants, draft, use, use.want or passed)
        return wants

    @staticmethod
    def _want(wants: dict[Operand, Quantized], draft: Draft, use: Use, want: Quantized | None) -> None:
        operand = use.operand
        if want is None or operand is None or isinstance(operand, Const) or operand.dtype != want.dtype:
            return
        if wants.setdefault(operand, want) != want:
            raise UserError(
                f"ONNX node '{draft.root.span}' ({draft.op}): an operand must have one scale for all its readers, "
                f"found {wants[operand].scale[:2]} and {want.scale[:2]}. Requantise it for one of them."
            )

    def _source_type(self, source: Source) -> TensorType:
        return self.wants.get(source) or _plain_type(source.dtype)

    def _out_type(self, draft: Draft) -> TensorType:
        if isinstance(draft.out, Integer):
            return self.wants.get(draft.root) or draft.out
        if draft.out is not None:
            self._check(draft, draft.out)
            return draft.out
        want = self.wants.get(draft.root) or _plain_type(draft.root.dtype)
        if draft.keeps_quantization and draft.inputs:
            first = self.graph.tensors[self._input(draft.inputs[0])].type
            return first if isinstance(first, Quantized) else want
        return want

    def _check(self, draft: Draft, out: TensorType) -> None:
        want = self.wants.get(draft.root)
        if isinstance(out, Quantized) and want is not None and want != out:
            raise UserError(
                f"ONNX node '{self.names[draft]}' ({draft.op}): its readers must read scale {out.scale[:2]} and zero "
                f"point {out.zero_point[:2]}, found {want.scale[:2]} and {want.zero_point[:2]}. Repair the reader."
            )

    # --- nodes and tensors

    def _node(self, draft: Draft) -> None:
        name = self.names[draft]
        inputs = [self._input(use, draft) for use in draft.inputs]
        output = self._add(
            Tensor(self._output_name(draft), draft.root.shape, self._out_type(draft), range_source=self._source(draft))
        )
        self.made[draft.root] = output
        covers, decodes = self._covers(draft, output), self._decodes(draft, output)
        self.graph.nodes.append(Node(name, draft.op, inputs, [output], dict(draft.attrs), covers, decodes))

    def _source(self, draft: Draft) -> str:
        """Ranges of tensors within an ONNX node, which no calibration sees, follow from the operators ("op")."""
        return "" if self._owns(draft) or not draft.root.span else "op"

    def _owns(self, draft: Draft) -> bool:
        return self.owners.get((draft.root.span, draft.root.output)) is draft

    def _output_name(self, draft: Draft) -> str:
        """The ONNX name where ``draft`` is the last call for that output of its node."""
        key = (draft.root.span, draft.root.output)
        owner = self._owns(draft)
        return self.tensor_names.get(key, f"{key[0]}:{key[1]}") if owner and key[0] else f"{self.names[draft]}:0"

    def _covers(self, draft: Draft, output: str) -> list[tuple[str, str, tuple[str, ...]]]:
        """The ONNX nodes a folded draft stands for."""
        parts = self._covered(draft)
        return [(part.root.span, part.op, (self._covered_tensor(part, draft, output),)) for part in parts]

    def _covered(self, draft: Draft) -> list[Draft]:
        """What it has swallowed, without what stays in the graph for other readers; nothing where all is one ONNX node."""
        parts = [part for part in draft.covers if part.root is draft.root or part not in self.names]
        return parts if len({part.root.span for part in parts}) > 1 else []

    def _decodes(self, draft: Draft, output: str) -> dict[str, str]:
        readers = [part for part in self._covered(draft) if part.op == "DequantizeLinear"]
        sources = [(part, part.inputs[0].operand) for part in readers]
        return {
            self._covered_tensor(part, draft, output): self.made[source]
            for part, source in sources
            if source is not None and not isinstance(source, Const)
        }

    def _covered_tensor(self, part: Draft, draft: Draft, output: str) -> str:
        key = (part.root.span, part.root.output)
        return output if part.root is draft.root else self.tensor_names.get(key, f"{key[0]}:{key[1]}")

    def _input(self, use: Use, draft: Draft | None = None) -> str:
        if use.operand is None:
            return ""
        if isinstance(use.operand, Const):
            return self._constant(use, use.operand, draft)
        return self.made[use.operand]

    def _constant(self, use: Use, const: Const, draft: Draft | None) -> str:
        data = const.data if use.data is None else use.data
        want = use.want or self._neighbour_want(draft)
        kind = want if want is not None and want.dtype == str(data.dtype) else _plain_type(str(data.dtype))
        key = (const, data.shape, kind, None if use.data is None else data.tobytes())
        if key not in self.constants:
            name = const.name or f"{self.names[draft] if draft else self.graph.name}:const"
            self.constants[key] = self._add(Tensor(name, tuple(data.shape), kind, np.asarray(data, order="C")))
        return self.constants[key]

    def _neighbour_want(self, draft: Draft | None) -> Quantized | None:
        """Quantisation of a constant that an operation such as Concat moves along with its other inputs."""
        return self.wants.get(draft.root) if draft is not None and draft.keeps_quantization else None

    def _add(self, tensor: Tensor) -> str:
        """Add a tensor under its name, or that name with a number where another one has it."""
        base, count = tensor.name, 0
        while tensor.name in self.graph.tensors:
            count += 1
            tensor.name = f"{base}#{count}"
        self.graph.tensors[tensor.name] = tensor
        return tensor.name


def _plain_type(dtype: str) -> TensorType:
    return Float() if dtype == "float32" else Integer(dtype)
