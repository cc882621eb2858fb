"""A task through smolagents, run in an environment that has it: `URL TOKEN TASK KIND`.

`tools` is its agent that calls tools as it comes: each request says that a call must be made. `auto` is the same for an
engine that cannot hold a model to that. `code` is its agent that writes programs.
"""

import sys

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

url, token, task, kind = sys.argv[1:]


@tool
def run(command: str) -> str:
    """Run a command.

    Args:
        command: the command
    """
    return command.removeprefix("echo ")


more = {"tool_choice": "auto"} if kind == "auto" else {}
model = OpenAIModel(model_id="turnwise", api_base=url, api_key=token, **more)
agent = (CodeAgent if kind == "code" else ToolCallingAgent)(tools=[run], model=model, max_steps=20, verbosity_level=0)
print(agent.run(task))
