"""Commands of every node, and the options and decorators that all commands share.

These modules combine keys and chain: only they import ``protocol.chain`` within ``protocol.node``, and only when a
command runs. The verbs are in ``protocol.chain.writing.actions``, which the local network shares.
"""
