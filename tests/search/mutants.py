"""Bytes that are nearly right: a capture in which some words, bytes or stretches are others."""

import re
from random import Random

WORD = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[-+\w.%]+|[\[{]')
"""Pieces with a meaning in most texts: a string, a number, a name, the beginning of a list."""
ODD = (
    b"-1", b"0", b"-0.0", b"NaN", b"-inf", b"1e999", b"1e-400", b"101.5", b"9" * 400, b"9" * 5000, b"1_000", b"0x10",
    b"18446744073709551616", b"9223372036854775808", b"-9223372036854775809", b"null", b"true", b"[]", b"{}", b"[1,2]",
    b'""', b'"text"', b'"\\ud800"', b'{"__type":5}', b"N/A", b"[N/A]", b" ", b"\n", b"\n\n", b"#", b",", b'"', b"\x00",
    b"\xff\xfe", b"\xed\xa0\x80", b"\xe9", "²".encode(), "٣".encode(), "\u2028".encode(), b"a" * 70_000, b"%s%n{0}",
    b"[" * 5000, b'{"a":' * 3000, b"-" * 50, b"\x1b[31m", b"\r",
)  # fmt: skip


class Mutator:
    """Makes mutants of some captures."""

    def __init__(self, seeds: list[bytes]) -> None:
        self._seeds = seeds
        self._words = [[match.span() for match in WORD.finditer(seed)] or [(0, len(seed))] for seed in seeds]

    def mutant(self, dice: Random) -> bytes:
        """Return a capture with one to four changes."""
        n = dice.randrange(len(self._seeds))
        seed, words = self._seeds[n], self._words[n]
        if dice.random() < 0.6:
            chosen = sorted({dice.choice(words) for _ in range(dice.randint(1, 4))}, reverse=True)
            for start, end in chosen:
                seed = seed[:start] + self._other(dice) + seed[end:]
            return seed
        data = bytearray(seed)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(data) + 1)
            size = dice.choice([1, 1, 4, 40, len(data) // 3])
            what = dice.randrange(6)
            if what == 0 and at < len(data):
                data[at] ^= 1 << dice.randrange(8)
            elif what == 1:
                del data[at : at + size]
            elif what == 2:
                data[at:at] = data[at : at + size]
            elif what == 3:
                data[at : at + size] = dice.randbytes(min(size, 60))
            elif what == 4:
                data[at:at] = self._other(dice)
            else:
                del data[at:]
        return bytes(data)

    def _other(self, dice: Random) -> bytes:
        if dice.random() < 0.7:
            return dice.choice(ODD)
        n = dice.randrange(len(self._seeds))
        start, end = dice.choice(self._words[n])
        return self._seeds[n][start:end]
