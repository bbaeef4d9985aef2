"""The printable stand-ins that byte-level BPE vocabularies use for bytes.

Every byte has one character: printable Latin-1 characters stand for themselves, the other 68
bytes take U+0100 onward in ascending order (Radford et al., GPT-2, `bytes_to_unicode`).
"""

_ITSELF = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(256) if byte not in _ITSELF)

BYTE_OF_CHAR: dict[str, bytes] = {
    **{chr(byte): bytes([byte]) for byte in _ITSELF},
    **{chr(0x100 + i): bytes([byte]) for i, byte in enumerate(_OTHERS)},
}


def bytes_of(text: str) -> bytes:
    """Return the bytes that `text` of stand-ins means; other characters count as UTF-8."""
    return b"".join(BYTE_OF_CHAR.get(char) or char.encode("utf-8", "replace") for char in text)
