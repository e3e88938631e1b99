"""Writes decimal_vectors.txt: operations on random Decimal128 values and what Python's decimal module makes of them.

Each line: operation, first operand, second operand, result. Run: python3 decimal_vectors.py > decimal_vectors.txt
"""

import random
from decimal import Context, Decimal, ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_EVEN

IEEE = Context(prec=34, rounding=ROUND_HALF_EVEN, Emin=-6143, Emax=6144, clamp=1, traps=[])
WIDE = Context(prec=20000, rounding=ROUND_HALF_EVEN, Emin=-999999, Emax=999999, traps=[])
MODES = {"halfeven": ROUND_HALF_EVEN, "down": ROUND_DOWN, "floor": ROUND_FLOOR, "ceiling": ROUND_CEILING}


def number(rng):
    kind = rng.randrange(20)
    if kind == 0:
        return Decimal(rng.choice(["NaN", "Infinity", "-Infinity", "0", "-0", "0E+6111", "0E-6176"]))
    digits = rng.choice([1, 1, 2, 3, 9, 17, 18, 33, 34, 34])
    coefficient = rng.randrange(10 ** (digits - 1), 10 ** digits)
    if rng.randrange(4) == 0:
        coefficient = rng.choice([1, 5, 10 ** 33, 10 ** 34 - 1, 5 * 10 ** 33, 2 ** 63, 2 ** 53 + 1])
    exponent = rng.choice([0, 0, -2, -digits, 1]) + rng.choice(
        [0, 0, rng.randrange(-5, 6), rng.randrange(-45, 46), rng.randrange(-6176, 6112)])
    exponent = max(-6176, min(6111, exponent))
    return Decimal(coefficient).scaleb(exponent, WIDE) * rng.choice([1, -1]) if digits < 28 else \
        Decimal((rng.randrange(2), tuple(map(int, str(coefficient))), exponent))


def remainder(a, b):
    """Truncated remainder without the limit on the quotient that the module has."""
    if not a.is_finite() or b.is_nan() or (b.is_finite() and b == 0):
        return Decimal("NaN")
    if b.is_infinite():
        return a
    return WIDE.remainder(a, b)


def main():
    rng = random.Random(20261120)
    operations = {"add": IEEE.add, "sub": IEEE.subtract, "mul": IEEE.multiply, "div": IEEE.divide, "rem": remainder}
    print("# made by decimal_vectors.py")
    for _ in range(1500):
        a, b = number(rng), number(rng)
        for name, operation in operations.items():
            if rng.randrange(5) == 0:
                print(name, a, b, operation(a, b))
    for _ in range(400):
        a = number(rng)
        places = rng.choice([0, 0, 1, 2, -1, -3, 10, 33])
        mode = rng.choice(list(MODES))
        result = a
        if a.is_finite() and a.as_tuple().exponent < -places:
            result = a.quantize(Decimal((0, (1,), -places)), MODES[mode], WIDE)
        print("round-" + mode, a, places, result)


main()
