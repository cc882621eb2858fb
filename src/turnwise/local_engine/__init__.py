"""The local engine: a server of its own process that turns token ids into sampled token ids, in vLLM's words.

One thread speaks HTTP, one computes. It knows nothing of messages, sessions, judges or training, and imports none
of them; start it with ``python -m turnwise.local_engine``.
"""

import os

# OpenMP's threads wait for each other by spinning. Beside a trainer on the same cores that made a decode step fifty
# times slower (docs/decisions/0002); sleeping costs little. Read when torch loads, hence here and not in __main__.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
