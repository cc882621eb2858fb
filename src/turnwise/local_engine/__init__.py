"""The local engine: a server of its own process that turns token ids into sampled token ids, in vLLM's words.

One thread speaks HTTP, one computes. It knows nothing of messages, sessions, judges or training, and imports none
of them; start it with ``python -m turnwise.local_engine``.
"""

import os

# OpenMP's threads wait for each other after each product. Asleep they take longer to wake than a product takes; awake
# for ever they take the cores from whoever else computes. So they stay awake for a moment, and how many are worth it is
# seen by trying (`threads.py`). Read when torch loads, hence here and not in __main__.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "5000")
