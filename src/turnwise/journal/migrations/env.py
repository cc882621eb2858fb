"""Alembic's entry point: runs the migrations on the connection the journal hands over."""

from alembic import context

from turnwise.journal.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
