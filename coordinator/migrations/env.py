"""Runs the revisions on the connection that ``migrate`` has opened a transaction on."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
