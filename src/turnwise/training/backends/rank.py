"""``python -m turnwise.training.backends.rank``: a rank beside the first one, which starts it.

It reads its configuration from its standard input and ends with the process that started it.
"""

from __future__ import annotations

import logging
import sys

import torch

from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.loops.process import LOG_FORMAT, die_with_parent
from turnwise.models.architectures import supported_model
from turnwise.training.backends.fsdp2 import follow


def main() -> int:
    die_with_parent()
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, stream=sys.stderr)
    config = Config.model_validate_json(sys.stdin.read())
    torch.set_num_threads(config.train.threads or 1)
    try:
        follow(config, supported_model(config.model.path))
    except TurnwiseError as e:
        logging.getLogger("trainer").error("%s", e)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
