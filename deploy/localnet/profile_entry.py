"""Entry of a running local network in a person's profile, under the name ``local``."""

from __future__ import annotations

import os
from pathlib import Path

from protocol.errors import Misconfigured
from protocol.node.profile import FILE_NAME, PROFILE_VARIABLE, Profile
from protocol.node.profile_edit import relative, set_network

NAME = "local"


def enter(rpc: str, addresses: Path) -> str:
    """Names a network in the profile of this folder, which is made if there is none; returns what was done, in words.

    Only ``[networks.local]`` is written, and the default if there is none. A network ``local`` of another address file
    stays, and so does the profile at home: a profile of this folder stands before it here and nowhere else.
    """
    told = os.environ.get(PROFILE_VARIABLE)
    if told == "":
        return ""
    path = Path(told or FILE_NAME)
    mend = f"name this network with: assize network add NAME --addresses {addresses} --rpc {rpc}"
    try:
        there = Profile.read(path).networks.get(NAME)
        if there is not None and relative(path, there.addresses) != relative(path, addresses):
            return f"{path} has another network {NAME}, of {there.addresses}, which stays; {mend}"
        profile = set_network(path, NAME, rpc, addresses)
    except Misconfigured as error:
        return f"this network is in no profile: {error}; {mend}"
    if profile.default != NAME:
        return f"network {NAME} is in {path}, whose default is {profile.default}: choose it with --network {NAME}"
    return f"network {NAME} is the default in {path}: commands in this folder need no address or URL"
