"""Servers of others that a coordinator's operator has: a database and an object store.

python -m tests.network.services postgresql      at 127.0.0.1:5432, with the database and the user ``assize``
python -m tests.network.services moto|s3rver HOST       at port 9000 of HOST, with the bucket ``assize``
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

DATABASE_PORT, STORE_PORT = 5432, 9000


def main() -> None:
    """Serves until killed."""
    if sys.argv[1] == "postgresql":
        from tests.postgresql import FORGETFUL, PostgreSQL, new_database

        folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
        new_database(PostgreSQL(folder, *FORGETFUL, port=DATABASE_PORT).url, "assize")
        print("ready", flush=True)
        threading.Event().wait()
    from tests.s3.servers import s3_server

    with s3_server("moto" if sys.argv[1] == "moto" else "s3rver", STORE_PORT, sys.argv[2]):
        print("ready", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
