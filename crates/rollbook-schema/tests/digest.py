"""Computes the digests that src/digest.rs expects, from the definition alone: python3 digest.py"""
import hashlib
import struct


def token_digest(tokens):
    state = bytes(32)
    for start in range(0, len(tokens), 256):
        block = tokens[start : start + 256]
        state = hashlib.sha256(state + struct.pack(f"<{len(block)}i", *block)).digest()
    return state.hex()


def wrapped(value):
    return (value + 2**31) % 2**32 - 2**31


def remainder(value, modulus):
    """Rust's %, which takes the sign of the dividend."""
    return abs(value) % modulus * (1 if value >= 0 else -1)


for length in (0, 1, 255, 256, 257, 512, 1000):
    ids = [remainder(wrapped(i * 7919), 50_000) - 3 for i in range(length)]
    print(f'            ({length}, "{token_digest(ids)}"),')
print(token_digest([-(2**31), -1, 0, 1, 2**31 - 1]))
