// Vercel's AI SDK through its own OpenAI provider, which speaks the Responses API.
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, Output, streamText, tool } from 'ai';
import { z } from 'zod';
import { asked, cancelled, failure, report } from './cases.mjs';

const provider = createOpenAI({ baseURL: `${asked.url}/v1`, apiKey: 'any' });
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
    const providerOptions = { openai: { parallelToolCalls: false } };
    const asking = { ...options, maxOutputTokens: 80, prompt: asked.call, tools, toolChoice: asked.is_forced ? 'required' : 'auto', providerOptions };
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
  // The second request names the items of the first one by their ids: the server has them stored.
  async conversation() {
    const messages = [{ role: 'user', content: asked.question }];
    const first = await generateText({ ...options, messages });
    const items = first.response.messages.flatMap((message) => message.content).map((part) => part.providerOptions?.openai?.itemId);
    const second = await generateText({ ...options, messages: [...messages, ...first.response.messages, ...messages] });
    const previousResponseId = first.providerMetadata.openai.responseId;
    const third = await generateText({ ...options, messages, providerOptions: { openai: { previousResponseId } } });
    return { isNamed: items.every((id) => /^msg_/.test(id)), texts: [first.text, second.text, third.text] };
  },
});
