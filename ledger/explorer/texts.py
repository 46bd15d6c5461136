"""Texts: tokens as words, by the tokenizer that a run's rules pin. Nothing of torch or transformers is needed.

A tokenizer's file is as hostile as its requester. Of it only the vocabulary and the decoder are kept, and only decoders
whose time and text grow with the tokens' own: no pattern of the file is ever run.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ledger.api.blobs import BlobSource, VersionPlace
from protocol.errors import Rejected, Unavailable
from protocol.wire.canonical import check_depth
from protocol.wire.pins import MAX_JSON_DEPTH
from protocol.wire.rules import Rules

TOKENIZER_FILE = "tokenizer.json"
KEPT_TOKENIZERS, KEPT_REFUSALS = 4, 256
"""Tokenizers held in memory, the ones used last, and refusals; a large tokenizer takes 100 MiB."""
MOST_FILE_BYTES, MOST_TOKENS = 16 << 20, 1 << 19
"""Bytes of the largest file that is read, and the most entries of its vocabulary."""
MOST_TOKEN_BYTES, MOST_DECODED_BYTES = 1 << 10, 64 << 10
"""Most bytes of one token's text, and of the tokens that are turned into text at once, in UTF-8."""
MOST_DECODERS = 8
DECODERS = {"ByteLevel", "ByteFallback", "BPEDecoder", "Fuse", "Metaspace", "Replace", "Sequence", "Strip", "WordPiece"}
"""Decoders that are run, of those the library has, so far as they leave a text no longer than about what it was."""

Decoder = Callable[[Sequence[int]], tuple[str, int]]
"""Turns token ids into text, special tokens by name, and says of how many of them: the first, up to
``MOST_DECODED_BYTES``."""


class Texts:
    """Decoders of runs. Threads may share it."""

    def __init__(self, blobs: BlobSource) -> None:
        self._blobs = blobs
        self._lock, self._parsing = threading.Lock(), threading.Lock()
        self._kept: OrderedDict[bytes, Decoder] = OrderedDict()
        self._refused: OrderedDict[bytes, str] = OrderedDict()

    def decoder(self, place: VersionPlace, rules: Rules, seconds: float) -> Decoder:
        """Returns the decoder of a run, whose tokenizer comes from the version at ``place``.

        Raises:
            Rejected: no relay is named, or the run's tokenizer is none that is run here.
            Unavailable: no relay answers in time, or another tokenizer is being read.
        """
        until = time.monotonic() + seconds
        pin = next((file for file in rules.pins if file.name == TOKENIZER_FILE), None)
        if pin is None:
            raise Rejected(f"the run's rules pin no {TOKENIZER_FILE}")
        _check_size(pin.size)
        if (kept := self._known(pin.hash)) is not None:
            return kept
        data = self._blobs.file(place, pin, seconds)
        if not self._parsing.acquire(timeout=max(0.0, until - time.monotonic())):
            raise Unavailable(f"another run's {TOKENIZER_FILE} is being read: try again later")
        try:  # one at a time: a file takes many times its size while it is read
            return self._known(pin.hash) or self._made(pin.hash, data)
        finally:
            self._parsing.release()

    def _known(self, file_hash: bytes) -> Decoder | None:
        """Returns the decoder of a file if it was made before; raises ``Rejected`` if it was refused before."""
        with self._lock:
            if (problem := self._refused.get(file_hash)) is not None:
                raise Rejected(problem)
            if (kept := self._kept.get(file_hash)) is not None:
                self._kept.move_to_end(file_hash)
            return kept

    def _made(self, file_hash: bytes, data: bytes) -> Decoder:
        try:
            made = decoder_of(data)
        except Rejected as error:
            with self._lock:
                self._refused[file_hash] = str(error)
                while len(self._refused) > KEPT_REFUSALS:
                    self._refused.popitem(last=False)
            raise
        with self._lock:
            self._kept[file_hash] = made
            while len(self._kept) > KEPT_TOKENIZERS:
                self._kept.popitem(last=False)
        return made


def decoder_of(data: bytes) -> Decoder:
    """Returns the decoder of a ``tokenizer.json``.

    Raises:
        Rejected: the file is invalid or too large, or has a decoder that is not run here.
        Unavailable: the library ``tokenizers`` is not installed.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise Unavailable("the library tokenizers, which turns tokens into text, is not installed") from error
    _check_size(len(data))
    check_depth(data, MAX_JSON_DEPTH)
    try:
        given = json.loads(data)
        if len(list(_decoders(given["decoder"]))) > MOST_DECODERS:
            raise Rejected(f"the run's {TOKENIZER_FILE} has more than the {MOST_DECODERS} decoders that are run here")
        vocabulary = _vocabulary(given)
        unused = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
        model = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
        made = {"version": "1.0", "added_tokens": [], "model": model, "decoder": given["decoder"]}
        join = Tokenizer.from_str(json.dumps(made | unused)).decoder
    except Rejected:
        raise
    except Exception as error:  # the library raises no class of its own
        raise Rejected(f"the run's {TOKENIZER_FILE} is invalid: {type(error).__name__}") from error

    def decode(ids: Sequence[int]) -> tuple[str, int]:
        tokens, decoded, size = list[str](), 0, 0
        for each in ids:
            token = vocabulary.get(each, "")
            size += len(token.encode())
            if size > MOST_DECODED_BYTES:
                break
            decoded += 1
            tokens += [token] if token else []
        return " ".join(tokens) if join is None else join.decode(tokens), decoded

    return decode


def _check_size(size: int) -> None:
    if size > MOST_FILE_BYTES:
        most = f"more than the {MOST_FILE_BYTES} that are read for a page"
        raise Rejected(f"the run's {TOKENIZER_FILE} has {size} bytes, {most}")


def _vocabulary(given: Any) -> dict[int, str]:
    """Returns the text of each token by its id; added ones come before the model's."""
    model = given["model"]["vocab"]
    numbered = model.items() if isinstance(model, dict) else ((text, at) for at, (text, _) in enumerate(model))
    texts = {number: text for text, number in numbered}
    texts |= {added["id"]: added["content"] for added in given.get("added_tokens", [])}
    if len(texts) > MOST_TOKENS:
        raise Rejected(f"the run's {TOKENIZER_FILE} has more than the {MOST_TOKENS} tokens that are read for a page")
    if any(len(text.encode()) > MOST_TOKEN_BYTES for text in texts.values()):
        raise Rejected(f"the run's {TOKENIZER_FILE} has a token of more than {MOST_TOKEN_BYTES} bytes")
    return texts


def _decoders(decoder: Any) -> Iterator[Any]:
    """Yields a decoder and those in it; raises ``Rejected`` at one that is not run here."""
    if decoder is None:
        return
    if decoder["type"] not in DECODERS or not _bounded(decoder):
        raise Rejected(f"the run's {TOKENIZER_FILE} has a decoder that is not run here")
    yield decoder
    for each in decoder.get("decoders", ()):
        yield from _decoders(each)


def _bounded(decoder: Any) -> bool:
    """Returns False for a decoder that lengthens texts, or that the library fails at."""
    match decoder["type"]:
        case "Replace":
            pattern, content = decoder["pattern"].get("String"), decoder["content"]
            return pattern is not None and len(content.encode()) <= len(pattern.encode()) <= MOST_TOKEN_BYTES
        case "BPEDecoder":  # it puts a space in place of each suffix
            return bool(decoder["suffix"])
        case "Strip":  # it reads past the start of a token that is shorter
            return bool(decoder["stop"] == 0)
        case _:
            return True
