"""A task through smolagents, run in an environment that has it: `URL TOKEN TASK KIND` (an agent of tools or code)."""

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


# By default it says that a call must be made, which an engine has to be able to hold a model to.
model = OpenAIModel(model_id="turnwise", api_base=url, api_key=token, tool_choice="auto")
agent = (CodeAgent if kind == "code" else ToolCallingAgent)(tools=[run], model=model, max_steps=20, verbosity_level=0)
print(agent.run(task))
