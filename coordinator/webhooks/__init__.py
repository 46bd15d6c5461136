"""Webhooks: events of the driven run, signed and sent to receivers that the operator names.

    event ──> outbox (a row an event, a row for each webhook that wants it) ──final──> sender ──2xx──> row deleted

An event of the chain is written in the transaction that mirrors its block, and sent once that block is final, so that
a reorganisation neither loses one nor has told something false. Receivers get each event at least once, in order; a
repeated one has the id that it had.
"""
