"""Entropy: every word once, to one thread, in one process; uniform integers without bias."""

from __future__ import annotations

import os
import threading
from collections import Counter

import numpy as np
import pytest

from dpsql.noise.entropy import BUFFER_BYTES, Entropy


def counting() -> tuple[Entropy, list[int]]:
    """Entropy whose words are 1, 2, 3, ..., and the sizes that were asked of its source."""
    asked: list[int] = []
    state = [0]

    def source(n: int) -> bytes:
        asked.append(n)
        words = np.arange(state[0] + 1, state[0] + 1 + n // 8, dtype=np.uint64)
        state[0] += n // 8
        return words.tobytes()

    return Entropy(source), asked


def test_words_are_handed_out_once() -> None:
    entropy, asked = counting()
    sizes = [1, 5, 0, 8000, 200, 8191, 8192, 20000, 7]
    taken = np.concatenate([entropy.words(n) for n in sizes])
    assert len(taken) == sum(sizes)
    assert len(set(taken.tolist())) == len(taken)
    assert min(n for n in asked if n) >= BUFFER_BYTES, "small requests must share a block"


def test_words_belong_to_the_caller() -> None:
    entropy, _ = counting()
    first = entropy.words(4)
    first[:] = 0
    assert entropy.words(4).tolist() == [5, 6, 7, 8]


def test_threads_share_no_words() -> None:
    entropy = Entropy()
    found: list[list[int]] = []

    def take() -> None:
        found.append([int(w) for _ in range(50) for w in entropy.words(100)])

    threads = [threading.Thread(target=take) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    words = [w for part in found for w in part]
    assert len(words) == 40_000
    assert len(set(words)) == len(words)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_never_sees_its_parents_words() -> None:
    entropy = Entropy()
    entropy.words(1)  # fills the buffer that a careless child would go on reading
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, entropy.words(16).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(read, 128), dtype=np.uint64).tolist()
    ours = entropy.words(4096).tolist()
    assert len(theirs) == 16
    assert not set(theirs) & set(ours)


def test_a_short_source_is_an_error() -> None:
    with pytest.raises(OSError, match="too few"):
        Entropy(lambda n: b"\0" * (n - 1)).words(3)


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 2**20 + 1, 2**32, 2**63 - 1, 2**63])
def test_below_gives_int64_in_range(bound: int) -> None:
    drawn = Entropy().below(bound, 1000)
    assert drawn.dtype == np.int64
    assert 0 <= int(drawn.min()) <= int(drawn.max()) <= bound - 1


@pytest.mark.parametrize("bound", [2**63 + 1, 2**64, 2**64 + 1, 3**100])
def test_below_gives_python_ints_beyond(bound: int) -> None:
    drawn = Entropy().below(bound, 200)
    assert drawn.dtype == object
    assert all(type(v) is int and 0 <= v < bound for v in drawn)
    assert max(drawn) > bound // 2, "the top bits must be random too"


def test_below_has_no_modulo_bias() -> None:
    """All words of four bits, once each: exactly those below ten come through, so each value counts once."""
    entropy = Entropy(lambda n: (np.arange(n // 8, dtype=np.uint64) % np.uint64(16)).tobytes())
    drawn = Counter(entropy.below(10, 16).tolist())
    # 0..9 are kept as they are; the six words above are drawn again, as 0..5 of the next words
    assert set(drawn) == set(range(10))
    naive = Counter((np.arange(16) % 10).tolist())
    assert max(naive.values()) - min(naive.values()) == 1, "the control: a remainder prefers small values"
    first = entropy.below(10, 10).tolist()
    assert len(first) == 10


def test_below_refuses_an_empty_range() -> None:
    with pytest.raises(ValueError, match="positive"):
        Entropy().below(0, 1)
