"""Lets torchvision be imported beside a torch of the CPU, for which the package index has no build of it: its compiled
operations are declared and none is there. Nothing here calls one; how a picture is scaled is torch's own.

Python reads this file at its start where this folder is on its path (`tests/support/vllm_server.py`).
"""

import re
from importlib.util import find_spec
from pathlib import Path

if (_found := find_spec("torchvision")) is not None and _found.submodule_search_locations:
    import torch

    _text = (Path(_found.submodule_search_locations[0]) / "_meta_registrations.py").read_text(encoding="utf-8")
    _LIBRARY = torch.library.Library("torchvision", "DEF")
    for _name in sorted(set(re.findall(r'(?:register_meta\("|torchvision::)(\w+)"', _text))):
        _LIBRARY.define(f"{_name}(Tensor x) -> Tensor")
