"""Ten actions asked of browser-use's chat class, in an environment that has it: `URL TOKEN TASK KIND`.

No browser is opened. `held`: each answer is to have the form of an action, as browser-use's own agent asks for it.
`told`: its own settings for a server that cannot hold a model to a form.
"""

import asyncio
import sys

from browser_use.llm.messages import AssistantMessage, SystemMessage, UserMessage
from browser_use.llm.openai.chat import ChatOpenAI
from pydantic import BaseModel

url, token, task, kind = sys.argv[1:]


class Action(BaseModel):
    name: str
    argument: str


async def talk() -> None:
    more = {"add_schema_to_system_prompt": True, "dont_force_structured_output": True} if kind == "told" else {}
    model = ChatOpenAI(model="turnwise", base_url=url, api_key=token, max_retries=0, **more)
    history = [SystemMessage(content="You work a browser."), UserMessage(content=task)]
    while True:
        action = (await model.ainvoke(history, output_format=Action)).completion
        if action.name == "done":
            print(action.argument)
            return
        history.append(AssistantMessage(content=action.model_dump_json()))
        history.append(UserMessage(content="Page: " + action.argument.removeprefix("echo ")))


asyncio.run(talk())
