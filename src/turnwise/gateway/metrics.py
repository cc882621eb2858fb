"""Figures of the gateway for Prometheus: requests, tokens, waiting times, and what the journal holds."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from turnwise.alarms import SIGNS

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """One registry per gateway, so that two gateways in one process (tests) do not share figures."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "turnwise_requests_total", "Requests by route and status.", ["route", "status"], registry=self.registry
        )
        self.tokens = Counter("turnwise_tokens_total", "Tokens by kind.", ["kind"], registry=self.registry)
        self.in_flight = Gauge("turnwise_requests_in_flight", "Answers under way.", registry=self.registry)
        self.first_token = Histogram(
            "turnwise_first_token_seconds", "Time to first token.", buckets=BUCKETS, registry=self.registry
        )
        self.open_turn = Histogram(
            "turnwise_open_turn_seconds",
            "Time to place, render and record a request.",
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.version = Gauge("turnwise_policy_version", "The serving policy version.", registry=self.registry)
        self.unrecorded = Gauge(
            "turnwise_unrecorded_turns",
            "Turns served since the start that a full disk did not record.",
            registry=self.registry,
        )
        self.turns = Gauge("turnwise_turns", "Recorded turns by state.", ["state"], registry=self.registry)
        self.alarms = Gauge(
            "turnwise_reward_alarm",
            "1 where judges' verdicts rise and this sign speaks against it.",
            ["sign"],
            registry=self.registry,
        )
        self.unrecognised = Gauge(
            "turnwise_unrecognised_histories",
            "Requests whose history has an answer, and which go on from no turn that was found.",
            registry=self.registry,
        )
        self.failed = 0

    def count(self, route: str, status: int) -> None:
        self.requests.labels(route, str(status)).inc()
        if status >= 500 and route != "/readyz":  # where a 503 is the answer, not a failure
            self.failed += 1

    def render(self, status: dict[str, Any]) -> bytes:
        """The text for a scrape, with the journal's figures as they are now."""
        for state, number in status["turns"].items():
            self.turns.labels(state).set(number)
        raised = {alarm["sign"] for alarm in status["alarms"]}
        for sign in SIGNS:
            self.alarms.labels(sign).set(sign in raised)
        self.unrecognised.set(status["unrecognised"])
        self.version.set(status["version"]["number"])
        return generate_latest(self.registry)
