"""The tables of rollouts. A trajectory is a session that plays a task; those of one task form a group."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, Table

from turnwise.journal.dialects.sql import where
from turnwise.journal.schema import Text, metadata

task_groups = Table(
    "task_groups",
    metadata,
    Column("id", Text, primary_key=True),  # as its client calls it
    Column("stream", Text, nullable=False),
    Column("task_id", Text, nullable=False),
    Column("size", Integer, nullable=False),  # trajectories that it is to have
    Column("state", Text, nullable=False),  # open, ready (to be claimed whole), used (part of a version), dropped
    Column("why", Text),  # it was dropped, or closed before it was complete
    Column("created_at", Float, nullable=False),
    Column("begun_mono", Float),  # created_at on the monotonic clock, or the start of a later boot
    Column("ready_mono", Float),  # since when it is ready; null: not yet, or of an earlier boot
    Index("ix_task_groups_live", "state", **where("state IN ('open', 'ready')")),
)

trajectories = Table(
    "trajectories",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("group_id", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("outcome", Float),
    Column("failure", Text),  # why there is no outcome and none will come: it is masked
    Column("ended_at", Float),  # one of both was posted
    Index("ix_trajectories_group", "group_id"),
)

environment_leases = Table(
    "environment_leases",
    metadata,
    Column("session_id", Text, primary_key=True),  # of the rollout that the environment is leased to
    Column("run", Text, nullable=False),
    Column("token", Integer, nullable=False),  # fencing: one more with each lease; an older holder is refused
    Column("state", Text, nullable=False),  # leased, scored (the outcome is known), posted (the gateway has it)
    Column("folder", Text),  # of the episode, to be deleted with it
    Column("until_mono", Float, nullable=False),
    Column("reward", Float),
    Column("failure", Text),  # why there is no reward
    Column("details", Text),  # JSON
    Index("ix_environment_leases_run", "run"),
)
