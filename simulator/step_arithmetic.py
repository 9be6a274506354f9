"""What each ALU operation means on unbounded Python integers; the step engine's own arithmetic."""

from __future__ import annotations

from collections.abc import Callable

LIMITS = {"i8": (-128, 127), "u8": (0, 255), "i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}


def signed64(value: int) -> int:
    """The low 64 bits as a signed number."""
    return (value + 2**63) % 2**64 - 2**63


def to_dtype(value: int, dtype: str, saturate: bool) -> int:
    """What is stored: clipped, or the low bits."""
    low, high = LIMITS[dtype]
    if saturate:
        return low if value < low else high if value > high else value
    return (value - low) % (high - low + 1) + low


def round_shift(value: int, amount: int) -> int:
    """value / 2**amount to the nearest integer, ties to even; to the left for amounts below 0."""
    amount = -63 if amount < -63 else 63 if amount > 63 else amount
    if amount <= 0:
        return signed64(value << -amount)
    below = value >> amount
    twice_rest = 2 * (value - (below << amount))
    whole = 1 << amount
    return below + 1 if twice_rest > whole or (twice_rest == whole and below % 2) else below


def round24(value: int) -> int:
    """The nearest number of 24 significant bits, ties to even."""
    excess = abs(value).bit_length() - 24
    return value if excess <= 0 else signed64(round_shift(value, excess) << excess)


def float_sum(old: int, value: int) -> int:
    """The sum of two float32 numbers, both first rounded to 24 significant bits, as float32 rounds it."""
    return nearest24(nearest24(old) + nearest24(value))


def nearest24(value: int) -> int:
    """As round24, of a number of any size."""
    excess = abs(value).bit_length() - 24
    if excess <= 0:
        return value
    below, rest = value >> excess, value % (1 << excess)
    half = 1 << (excess - 1)
    return (below + (rest > half or (rest == half and below % 2 == 1))) << excess


FOLD: dict[str, Callable[[int, int], int]] = {
    "sum": lambda x, y: signed64(x + y),
    "max": max,
    "min": min,
    "sum24": float_sum,
}


def folded_value(op: str, value: int) -> int:
    """What a fold leaves: a sum24 has its own first rounding, and ends within 64 bits."""
    return to_dtype(nearest24(value), "i64", saturate=True) if op == "sum24" else value


def shift_amount(amount: int) -> int:
    """Plain shifts take 0 to 63."""
    return 0 if amount < 0 else 63 if amount > 63 else amount


MEANING: dict[str, Callable[[int, int, int, int], int]] = {
    "mov": lambda a, b, c, d: a,
    "add": lambda a, b, c, d: a + b,
    "sub": lambda a, b, c, d: a - b,
    "mul": lambda a, b, c, d: a * b,
    "and": lambda a, b, c, d: a & b,
    "or": lambda a, b, c, d: a | b,
    "xor": lambda a, b, c, d: a ^ b,
    "min": lambda a, b, c, d: b if b < a else a,
    "max": lambda a, b, c, d: b if b > a else a,
    "lt": lambda a, b, c, d: 1 if a < b else 0,
    "le": lambda a, b, c, d: 1 if a <= b else 0,
    "eq": lambda a, b, c, d: 1 if a == b else 0,
    "ne": lambda a, b, c, d: 0 if a == b else 1,
    "sel": lambda a, b, c, d: b if a != 0 else c,
    "shl": lambda a, b, c, d: a << shift_amount(b),
    "shr": lambda a, b, c, d: a >> shift_amount(b),
    "rshr": lambda a, b, c, d: round_shift(a, b),
    "mulr": lambda a, b, c, d: round_shift(signed64(a * b), c) + d,
    "mulrf": lambda a, b, c, d: round_shift(round24(signed64(round24(a) * b)), c) + d,
    "round24": lambda a, b, c, d: round24(a),
    "clz": lambda a, b, c, d: 64 - (a % 2**64).bit_length(),
}
