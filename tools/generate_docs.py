"""Writes the pages of docs/ that repeat what the code says: machine.md, isa.md, supported_ops.md (`make docs`).

``--check`` writes nothing and names the pages that no longer say what the code says.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from epu.lowering.table import EXPANDED, VIEWS
from epu.operators import OPERATORS, Operator
from epu.relay_passes.onnx_host import HOST_REASONS
from epu.simulator.elementwise import ALU_SENTENCE
from epu.simulator.instructions import INSTRUCTIONS
from epu.simulator.machine import ALU_COST, ALU_COST_ADDEND, ALU_COST_SATURATE, LUT_COST, PRODUCTS, Machine
from epu.simulator.operands import Grid, Imm, Lrm, Ocm

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTICE = "<!-- Written by `make docs` from the code; edit the code. -->\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"


def manual(described: object) -> str:
    """The docstring of an operand, an instruction or one of its methods, as Markdown."""
    return (inspect.getdoc(described) or "").replace("``", "`")


def signature(described: type) -> str:
    """The fields in the order in which they are given, with their types and defaults."""
    given = [
        f"{each.name}: {each.type}" + ("" if each.default is dataclasses.MISSING else f" = {each.default!r}")
        for each in dataclasses.fields(described)
    ]
    return f"`{described.__name__}({', '.join(given)})`\n"


def machine_page() -> str:
    products = {name: Machine.for_product(name) for name in PRODUCTS}
    numbers = (
        (
            f"`{each.name}`",
            each.metadata["text"],
            f"**{each.metadata['kind']}**",
            *(getattr(machine, each.name) for machine in products.values()),
        )
        for each in dataclasses.fields(Machine)
        if each.name != "product"
    )
    alu = [(f"`{op}`", narrow, wide) for op, (narrow, wide) in ALU_COST.items()]
    return "\n".join([
        "# The machine\n",
        NOTICE,
        "Each number of the hardware is a field of `Machine` (`simulator/machine.py`): a published fact, or an assumption "
        "that bounds what the compiler may claim. `HWConfig` overrides them.\n",
        table(("field", "meaning", "kind", *products), numbers),
        "## Cycles of the ALU\n",
        "Per element and PE, an **assumption**: with all operands within 32 bits, and with any operand of 64 bits.\n",
        table(("operation", "32 bits", "64 bits"), alu),
        f"An addend `d` costs {ALU_COST_ADDEND} more, saturation {ALU_COST_SATURATE} more. A look-up takes {LUT_COST}.\n",
    ])  # fmt: skip


def isa_page() -> str:
    operands = [f"### {each.__name__}\n\n{signature(each)}\n{manual(each)}\n" for each in (Grid, Lrm, Ocm, Imm)]
    instructions = [
        f"### {each.__name__}\n\n{signature(each)}\nOpcode {each.opcode}. {manual(each)}\n\n"
        f"Cycles: {manual(each.cycles)} Limits: {manual(each.limits)}\n"
        for each in INSTRUCTIONS
    ]
    operations = [(f"`{op}`", sentence) for op, sentence in ALU_SENTENCE.items()]
    opening = "Addresses and strides are in bytes, the byte order is little endian. Timing and faults: [design.md](design.md).\n"
    return "\n".join(
        ["# Instructions\n", NOTICE, opening, "## Operands\n", *operands, "## Instructions\n", *instructions]
        + ["## Operations of Alu\n", table(("operation", "result"), operations)]
    )


def operators_page() -> str:
    from epu.relay_passes.import_onnx import CONVERTERS

    rows = [
        (f"`{row.name}`", ", ".join(row.types), place(row), "<br>".join(limit.sentence for limit in row.limits))
        for row in sorted(OPERATORS.values(), key=lambda row: row.name)
    ]
    opening = (
        "What the EPU runs: the types of the data that an operator reads (FixedPoint32 is what a float32 tensor becomes, mask "
        "what bool becomes), where it runs, and its limits. What breaks a limit stays on the host, with the limit as the "
        "reason. Names that ONNX does not know are groups that the compiler recognises, or parts that it makes.\n"
    )
    spelled = ", ".join(f"`{op}`" for op in sorted(CONVERTERS.keys() - OPERATORS.keys()))
    host = [(f"`{op}`", reason.removeprefix("found ")) for op, reason in sorted(HOST_REASONS.items())]
    return "\n".join([
        "# Operators\n",
        NOTICE,
        opening,
        table(("operator", "types", "where it runs", "limits"), rows),
        "## Spelt with the operators above\n",
        "ONNX and ONNX Runtime operators that the importer spells with those of the table, in their types and limits; a "
        f"model's tensors keep their names: {spelled}.\n",
        "## Folded at compile time\n",
        "Every ONNX operator whose inputs are constants or shapes (`Shape`, `Size`, `Range`, `ConstantOfShape`, arithmetic of "
        "integers), by ONNX's reference evaluator. Such a node costs nothing at run time.\n",
        "## Only on the host\n",
        "All other operators stay on the host. Why, of those that models have most:\n",
        table(("operator", "reason"), host),
    ])  # fmt: skip


def place(row: Operator) -> str:
    """Where nodes of a row run."""
    if row.name in VIEWS:
        return "no work: a view of its input's bytes"
    if row.name in EXPANDED:
        return f"EPU, as kernels of other operators (`{row.family}`)"
    return f"EPU, kernel family `{row.family}`"


PAGES = {"machine.md": machine_page, "isa.md": isa_page, "supported_ops.md": operators_page}
NEEDS_TVM = ("supported_ops.md",)  # the importer's list of operators


def main() -> int:
    made = {name: page for name, page in PAGES.items() if name not in NEEDS_TVM or find_spec("tvm") is not None}
    pages = {DOCS / name: "\n".join(page().splitlines()) + "\n" for name, page in made.items()}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"docs/{path.name} is out of date. Run make docs and commit it.")
        return len(stale) > 0
    for path in stale:
        path.write_text(pages[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
