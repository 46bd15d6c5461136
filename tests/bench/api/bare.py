"""A FastAPI application that checks nothing: ``python -m tests.bench.api.bare PORT``."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI

from protocol.transport.listening import listen
from protocol.wire.api import Assignments

app = FastAPI()


@app.get("/nodes/{node}/assignments")
async def assignments(node: int, wait: float = 0) -> Assignments:
    """Nothing to do, for anybody."""
    return Assignments(rounds=[])


if __name__ == "__main__":
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listen("127.0.0.1", int(sys.argv[1]))])
