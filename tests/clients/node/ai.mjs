// Vercel's AI SDK, through its provider for servers like this one.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, Output, streamText, tool } from 'ai';
import { z } from 'zod';
import { asked, cancelled, failure, report } from './cases.mjs';

const provider = createOpenAICompatible({ name: 'convoy', baseURL: `${asked.url}/v1`, apiKey: 'any', includeUsage: true, supportsStructuredOutputs: true });
const model = provider(asked.model);
const options = { model, maxRetries: 0, maxOutputTokens: asked.most };
const weather = z.object({ city: z.enum(['Oslo', 'Lima']), isCold: z.boolean() });

await report({
  async whole() {
    const { text, finishReason, usage } = await generateText({ ...options, prompt: asked.question });
    return { text, finish: finishReason, tokens: usage.outputTokens };
  },
  async stream() {
    const result = streamText({ ...options, prompt: asked.question });
    const told = { text: '', pieces: 0 };
    for await (const piece of result.textStream) { told.text += piece; told.pieces += 1; }
    return { ...told, finish: await result.finishReason, tokens: (await result.usage).outputTokens };
  },
  async schema() {
    const { output } = await generateText({ ...options, maxOutputTokens: 60, prompt: asked.json, output: Output.object({ schema: weather }) });
    return output;
  },
  async tool() {
    const tools = { weather: tool({ description: 'The weather of a city.', inputSchema: z.object({ city: z.enum(['Oslo', 'Lima']) }) }) };
    const asking = { ...options, maxOutputTokens: 80, prompt: asked.call, tools, toolChoice: asked.is_forced ? 'required' : 'auto', providerOptions: { convoy: { parallel_tool_calls: false } } };
    const plain = ({ toolName: name, input }) => ({ name, input });
    const whole = await generateText(asking);
    const streamed = streamText(asking);
    return { whole: whole.toolCalls.map(plain), streamed: (await streamed.toolCalls).map(plain), finish: whole.finishReason };
  },
  async cancel() {
    return cancelled(async () => {
      const controller = new AbortController();
      const { textStream } = streamText({ ...options, maxOutputTokens: 400, prompt: asked.endless, abortSignal: controller.signal });
      return { pieces: textStream, abort: () => controller.abort() };
    });
  },
  async unknownModel() {
    return failure(() => generateText({ ...options, model: provider('nobody'), prompt: 'x' }));
  },
});
