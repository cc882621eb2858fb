// A conversation through Vercel's AI SDK, run beside a node_modules that has it: `URL TOKEN MESSAGES MODE` (JSON).
// `stream` and `whole` keep all messages of an answer; `said` keeps those of its last step, as programs do that were
// written for its fifth version, where that was all of them.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const [url, token, messages, mode] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "turnwise", baseURL: url, apiKey: token, includeUsage: true });
const run = tool({
  description: "Run a command.",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => command.replace("echo ", ""),
});

const history = [];
for (const text of JSON.parse(messages)) {
  history.push({ role: "user", content: text });
  const asked = { model: provider("turnwise"), messages: history, tools: { run }, stopWhen: isStepCount(5), maxRetries: 0 };
  const result = mode === "stream" ? streamText(asked) : await generateText(asked);
  console.log(await result.text);
  const kept = mode === "said" ? (await result.response).messages : await result.responseMessages;
  history.push(...kept);
}
