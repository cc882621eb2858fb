"""The local engine: a server of its own process that turns token ids into sampled token ids, in vLLM's words.

One thread speaks HTTP, one computes. It knows nothing of messages, sessions, judges or training, and imports none
of them; start it with ``python -m turnwise.engines.local``.
"""
