"""A task through CrewAI, run in an environment that has it: `URL TOKEN TASK`."""

import sys

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

url, token, task = sys.argv[1:]


@tool("run")
def run(command: str) -> str:
    """Run a command."""
    return command.removeprefix("echo ")


llm = LLM(model="turnwise", custom_openai=True, base_url=url, api_key=token)
worker = Agent(role="Worker", goal="Run commands", backstory="A worker.", tools=[run], llm=llm, max_iter=20)
work = Task(description=task, expected_output="That it is done.", agent=worker)
print(Crew(agents=[worker], tasks=[work]).kickoff().raw)
