"""A client of a plain file server: receives a file over one connection, checks its BLAKE3, replaces the file before it.

python -m tests.bench.shardcast.plain URL FILE HASH   starts at a line on standard input, prints the time at the end
"""

from __future__ import annotations

import http.client
import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from blake3 import blake3

PIECE_BYTES = 4 << 20


def main(url: str, path: Path, expected: str) -> None:
    """Fetches the file."""
    split = urlsplit(url)
    memory, digest = memoryview(bytearray(PIECE_BYTES)), blake3()
    connection = http.client.HTTPConnection(split.netloc)
    print("ready", flush=True)
    sys.stdin.readline()
    connection.request("GET", split.path)
    partial = path.with_suffix(".partial")
    with partial.open("wb", buffering=0) as file, connection.getresponse() as answer:
        while size := answer.readinto(memory):
            digest.update(memory[:size])
            file.write(memory[:size])
    if digest.hexdigest() != expected:
        raise SystemExit("the file server sent other bytes")
    os.replace(partial, path)
    print(time.time(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
