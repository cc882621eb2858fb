"""mini-swe-agent: its global `.env` file. It calls models through LiteLLM, whose provider for such servers we take."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from turnwise.agents.endpoint import Endpoint
from turnwise.agents.shape import Agent
from turnwise.agents.texts import set_dotenv


def file(environment: dict[str, str]) -> Path:
    folder = environment.get("MSWEA_GLOBAL_CONFIG_DIR") or platformdirs.user_config_dir("mini-swe-agent")
    return Path(folder) / ".env"


def edit(text: str, endpoint: Endpoint) -> str:
    values = {
        "MSWEA_MODEL_NAME": f"hosted_vllm/{endpoint.model}",
        "HOSTED_VLLM_API_BASE": endpoint.v1,
        "HOSTED_VLLM_API_KEY": endpoint.token,
        "MSWEA_CONFIGURED": "true",  # else it asks for a model and a key at its first start
        "MSWEA_COST_TRACKING": "ignore_errors",  # LiteLLM knows no price for this model
    }
    return set_dotenv(text, values)


AGENT = Agent(file, edit, 'mini -t "Say hello"', first_prompt={"default": 960})
