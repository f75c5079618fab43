"""Damage to bytes: flipped, cut, repeated, replaced by what parsers trip over."""

from __future__ import annotations

import random

AWKWARD = (
    *(b"", b"\0", b"\xff\xfe", b"\xff" * 8, b"\x80\x80\x80\x80", "ä€🙂".encode(), b"\x1b[31m"),
    *(b"-1", b"0", b"1e999", b"nan", b"99999999999999999999"),
    *(b"'", b'"', b"\\", b",", b"\n", b"\r\n", b"\r\n\r\n", b"{", b"[" * 500, b"}", b": ", b"%s%n"),
    *(b"../", b"/dev/zero", b"a" * 300, b"A" * 5000, b"!!python/object:os.system", b"&a [*a,*a]"),
)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """One to eight changes at random places."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        place = rng.randrange(len(changed) + 1)
        other = rng.randrange(len(changed) + 1)
        length = rng.choice((1, 1, 2, 4, 16, 100))
        kind = rng.randrange(7)
        if kind == 0 and changed:
            changed[min(place, len(changed) - 1)] = rng.randrange(256)
        elif kind == 1:
            changed[place : place + length] = rng.randbytes(length)
        elif kind == 2:
            del changed[place : place + length]
        elif kind == 3:
            changed[place:place] = changed[other : other + length]
        elif kind == 4:
            changed[place : place + rng.choice((0, length))] = rng.choice(AWKWARD)
        elif kind == 5 and rng.random() < 0.3:
            del changed[place:]
        elif changed:
            changed[min(place, len(changed) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)
