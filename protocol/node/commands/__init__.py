"""Commands: ``assize wallet | node | stake | run | appeal | credits | relay``.

These modules combine keys and chain: only they import ``protocol.chain`` within ``protocol.node``, and only when a
command runs. The verbs are in ``protocol.chain.writing.actions``, which the local network shares.
"""

from protocol.node.commands.appeal import app as appeal
from protocol.node.commands.credits import app as credits
from protocol.node.commands.node import app as node
from protocol.node.commands.run import app as run
from protocol.node.commands.stake import app as stake
from protocol.node.commands.wallet import app as wallet

__all__ = ["appeal", "credits", "node", "run", "stake", "wallet"]
