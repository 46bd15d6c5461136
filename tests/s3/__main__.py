"""``python -m tests.s3 moto|s3rver --port N``: serves a bucket until it is told to stop; its settings as NAME=value."""

from __future__ import annotations

import argparse
import signal
import sys

from tests.s3.servers import BUCKET, KINDS, s3_server


def main() -> None:
    """Prints the variables by which a process reaches the store, then its URL, once it answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--bucket", default=BUCKET)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with s3_server(given.kind, given.port, given.host, given.bucket) as server:
        for name, value in server.environment.items():
            print(f"{name}={value}")
        print(server.url(), flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
