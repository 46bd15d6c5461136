"""What a person types: ``assize wallet | node | stake | run | appeal | credits``.

These modules put keys and chain together, so they alone in ``protocol.node`` import ``protocol.chain``, and that only
when a command runs. The actions themselves are in ``protocol.chain.writing.actions``, which the local network uses too.
"""

from protocol.node.commands.appeal import app as appeal
from protocol.node.commands.credits import app as credits
from protocol.node.commands.node import app as node
from protocol.node.commands.run import app as run
from protocol.node.commands.stake import app as stake
from protocol.node.commands.wallet import app as wallet

__all__ = ["appeal", "credits", "node", "run", "stake", "wallet"]
