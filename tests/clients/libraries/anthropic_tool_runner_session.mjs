// A conversation through the tool runner of Anthropic's TypeScript SDK: `URL TOKEN MESSAGES MODE` (JSON; stream or whole).

import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const [url, token, messages, mode] = process.argv.slice(2);
const client = new Anthropic({ baseURL: url, authToken: token, maxRetries: 0 });
const run = betaTool({
  name: "run",
  description: "Run a command.",
  inputSchema: { type: "object", properties: { command: { type: "string" } }, required: ["command"] },
  run: ({ command }) => command.replace("echo ", ""),
});

let history = [];
for (const text of JSON.parse(messages)) {
  history.push({ role: "user", content: text });
  const asked = { model: "turnwise", max_tokens: 200, messages: history, tools: [run] };
  const runner = client.beta.messages.toolRunner({ ...asked, stream: mode === "stream" });
  const last = await runner.runUntilDone();
  console.log(last.content.map((block) => block.text ?? "").join(""));
  history = [...runner.params.messages];
}
