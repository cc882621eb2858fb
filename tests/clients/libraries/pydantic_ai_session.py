"""A conversation through pydantic-ai, run in an environment that has it: `URL TOKEN MESSAGES` (JSON)."""

import json
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

url, token, messages = sys.argv[1:]
agent = Agent(OpenAIChatModel("turnwise", provider=OpenAIProvider(base_url=url, api_key=token)))


@agent.tool_plain
def run(command: str) -> str:
    """Run a command."""
    return command.removeprefix("echo ")


history = None
for text in json.loads(messages):
    result = agent.run_sync(text, message_history=history)
    history = result.all_messages()
    print(result.output)
