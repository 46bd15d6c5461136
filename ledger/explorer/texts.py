"""Texts: tokens as words, by the tokenizer that a run's rules pin. Nothing of torch or transformers is needed.

A tokenizer's file is as hostile as its requester. Of it only the vocabulary and the decoder are kept, and only decoders
whose time grows with the text: no pattern of the file is ever run.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from ledger.api.blobs import BlobSource, VersionPlace
from protocol.errors import Rejected, Unavailable
from protocol.wire.canonical import check_depth
from protocol.wire.pins import MAX_JSON_DEPTH
from protocol.wire.rules import Rules

TOKENIZER_FILE = "tokenizer.json"
KEPT_TOKENIZERS = 4
"""Tokenizers held in memory, the ones used last; a large one takes 100 MiB."""
DECODERS = {"ByteLevel", "ByteFallback", "BPEDecoder", "Fuse", "Metaspace", "Replace", "Sequence", "Strip", "WordPiece"}
"""Decoders that are run, of those the library has; ``Replace`` with a plain text only."""

Decoder = Callable[[Sequence[int]], str]
"""Turns token ids into text, special tokens by name."""


class Texts:
    """Decoders of runs. Threads may share it."""

    def __init__(self, blobs: BlobSource) -> None:
        self._blobs = blobs
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, Decoder] = OrderedDict()

    def decoder(self, place: VersionPlace, rules: Rules, seconds: float) -> Decoder:
        """Returns the decoder of a run, whose tokenizer comes from the version at ``place``.

        Raises:
            Rejected: no relay is named, or the run's tokenizer is none that is run here.
            Unavailable: no relay answers in time.
        """
        pin = next((file for file in rules.pins if file.name == TOKENIZER_FILE), None)
        if pin is None:
            raise Rejected(f"the run's rules pin no {TOKENIZER_FILE}")
        with self._lock:
            kept = self._kept.get(pin.hash)
        made = kept or decoder_of(self._blobs.file(place, pin, seconds))
        with self._lock:
            self._kept[pin.hash] = made
            self._kept.move_to_end(pin.hash)
            while len(self._kept) > KEPT_TOKENIZERS:
                self._kept.popitem(last=False)
        return made


def decoder_of(data: bytes) -> Decoder:
    """Returns the decoder of a ``tokenizer.json``.

    Raises:
        Rejected: the file is invalid, or has a decoder that is not run here.
        Unavailable: the library ``tokenizers`` is not installed.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise Unavailable("the library tokenizers, which turns tokens into text, is not installed") from error
    check_depth(data, MAX_JSON_DEPTH)
    try:
        given = json.loads(data)
        _check_decoder(given["decoder"])
        kept = {"version": "1.0", "added_tokens": given.get("added_tokens", []), "decoder": given["decoder"]}
        unused = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
        model = given["model"] | ({"merges": []} if "merges" in given["model"] else {})
        tokenizer = Tokenizer.from_str(json.dumps({**kept, **unused, "model": model}))
    except Rejected:
        raise
    except Exception as error:  # the library raises no class of its own
        raise Rejected(f"the run's {TOKENIZER_FILE} is invalid: {type(error).__name__}") from error
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))


def _check_decoder(decoder: Any) -> None:
    if decoder is None:
        return
    if decoder["type"] not in DECODERS or (decoder["type"] == "Replace" and "String" not in decoder["pattern"]):
        raise Rejected(f"the run's {TOKENIZER_FILE} has a decoder that is not run here")
    for each in decoder.get("decoders", ()):
        _check_decoder(each)
