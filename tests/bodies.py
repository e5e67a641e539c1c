"""Bodies of a known size, for tests of bounds in bytes."""

import base64
import random

KILO = 1_000


def texts(count: int, size: int = 10 * KILO) -> list[str]:
    """Some bodies of a size in bytes, which compression makes no smaller than three quarters."""
    numbers = random.Random(count)
    return [base64.b64encode(numbers.randbytes(size * 3 // 4)).decode() for _ in range(count)]
