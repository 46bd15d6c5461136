"""The processes of shardcast 0.3.2, run in an environment that has the package.

python theirs.py origin FOLDER PORT FILE             broadcasts FILE at each line on its standard input
python theirs.py relay FOLDER PORT URL               relays what URL broadcasts, looking every second
python theirs.py client FOLDER URL VERSION           prints the time at which the version is whole
"""

import sys
import time
from pathlib import Path

import shardcast


def connected(url: str, folder: Path) -> shardcast.ClientNode:
    """Returns a client that has measured its server: clients of one machine disturb one another by a shared file."""
    while True:
        try:
            client = shardcast.ClientNode([url], str(folder))
            client.list_available_versions()  # raises for ever if the measurement has failed
            return client
        except Exception:  # the package raises nothing else
            time.sleep(0.1)


def main(role: str, folder: Path, *words: str) -> None:
    """Plays a role until standard input ends, or until the version is there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data1.bin").write_bytes(b"0")  # clients measure a server by it
    if role == "client":
        url, version = words
        client = connected(url, folder)
        print("ready", flush=True)
        while version not in client.list_available_versions():
            time.sleep(0.1)
        while client.download_version(version, str(folder / "model.safetensors")) is None:
            time.sleep(0.1)
        print(time.time(), flush=True)
        return
    if role == "relay":
        shardcast.MiddleNode([words[1]], str(folder), int(words[0]), check_interval=1)
    else:
        shardcast.initialize(str(folder), int(words[0]), max_distribution_folders=2)
    for _ in sys.stdin:
        began = time.time()
        shardcast.broadcast(words[1])
        print(began, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
