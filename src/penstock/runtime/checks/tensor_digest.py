"""Digests of the contents of tensors, equal on every kind of device.

Sums of floating-point numbers depend on the order of a device's kernel. These are sums of integers modulo 2^64, over
the bytes of the tensor as they are: they are exact in any order. A tensor is read in chunks, so that a digest needs
little memory beside it.
"""

import torch
from torch import Tensor

from penstock.runtime.tensors import flatten_dense

WORD = torch.int64
CHUNK_WORDS = 1 << 20
ODD = 0x9E3779B97F4A7C15 - (1 << 64)
"""An odd multiplier, as a signed word: it maps different words to different ones."""

Digest = tuple[int, int]
"""The sum of all words, and their sum weighted by position."""


def digest_values(tensor: Tensor) -> Digest:
    """Return the digest of the values of a tensor, in the order of their indices.

    >>> digest_values(torch.zeros(3)), digest_values(torch.tensor([1, 0])) == digest_values(torch.tensor([0, 1]))
    ((0, 0), False)
    """
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    raw = flatten_dense(plain).view(torch.uint8)
    totals = torch.zeros(2, dtype=WORD, device=raw.device)
    for start in range(0, raw.numel(), CHUNK_WORDS * WORD.itemsize):
        words = _words(raw[start : start + CHUNK_WORDS * WORD.itemsize])
        first_word = start // WORD.itemsize
        places = torch.arange(first_word, first_word + words.numel(), dtype=WORD, device=raw.device)
        # Weights are odd, so that no change of a single word is lost; sums and products wrap around.
        totals += torch.stack([words.sum(), places.mul_(ODD).bitwise_or_(1).mul_(words).sum()])
    first, second = totals.tolist()
    return first, second


def _words(raw: Tensor) -> Tensor:
    """Bytes as words. Bytes that fill no word are padded with zeros."""
    size = WORD.itemsize
    if raw.storage_offset() % size == 0 and raw.numel() % size == 0:
        return raw.view(WORD)
    padded = torch.zeros(-(-raw.numel() // size) * size, dtype=torch.uint8, device=raw.device)
    padded[: raw.numel()] = raw
    return padded.view(WORD)
