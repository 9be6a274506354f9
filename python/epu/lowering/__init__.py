"""From a typed node to a kernel with its operands: the constants and shifts of docs/arithmetic.md, worked out."""
