"""Answers that the weights in training give, to be looked at or learned from."""
