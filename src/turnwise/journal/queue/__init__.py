"""The way from a next state to a policy version: judging, verdicts, the review list, batches and versions."""
