"""Ten actions asked of browser-use's chat class, in an environment that has it: `URL TOKEN TASK`. No browser is opened.

Each answer is held to the form of an action, as browser-use's own agent holds it.
"""

import asyncio
import sys

from browser_use.llm.messages import AssistantMessage, SystemMessage, UserMessage
from browser_use.llm.openai.chat import ChatOpenAI
from pydantic import BaseModel

url, token, task = sys.argv[1:]


class Action(BaseModel):
    name: str
    argument: str


async def talk() -> None:
    model = ChatOpenAI(model="turnwise", base_url=url, api_key=token, max_retries=0)
    history = [SystemMessage(content="You work a browser."), UserMessage(content=task)]
    while True:
        action = (await model.ainvoke(history, output_format=Action)).completion
        if action.name == "done":
            print(action.argument)
            return
        history.append(AssistantMessage(content=action.model_dump_json()))
        history.append(UserMessage(content="Page: " + action.argument.removeprefix("echo ")))


asyncio.run(talk())
