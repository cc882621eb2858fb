"""A conversation through langchain-openai, run in an environment that has it: `URL TOKEN MESSAGES` (JSON)."""

import json
import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

url, token, messages = sys.argv[1:]


@tool
def run(command: str) -> str:
    """Run a command."""
    return command.removeprefix("echo ")


model = ChatOpenAI(model="turnwise", base_url=url, api_key=token, streaming=True).bind_tools([run])
history = []
for text in json.loads(messages):
    history.append(HumanMessage(text))
    while True:
        answer = model.invoke(history)
        history.append(answer)
        if not answer.tool_calls:
            break
        history += [ToolMessage(run.invoke(call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]
    print(answer.content)
