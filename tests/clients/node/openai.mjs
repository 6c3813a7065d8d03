// OpenAI's own client.
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { asked, cancelled, failure, report } from './cases.mjs';

const client = new OpenAI({ baseURL: `${asked.url}/v1`, apiKey: 'any', maxRetries: 0 });
const body = (content, fields = {}) => ({ model: asked.model, max_tokens: asked.most, messages: [{ role: 'user', content }], ...fields });
const place = z.object({ city: z.enum(['Oslo', 'Lima']) });
const weather = z.object({ city: z.enum(['Oslo', 'Lima']), isCold: z.boolean() });

await report({
  async models() {
    return (await client.models.list()).data.map((model) => model.id);
  },
  async whole() {
    const reply = await client.chat.completions.create(body(asked.question));
    return { text: reply.choices[0].message.content, finish: reply.choices[0].finish_reason, tokens: reply.usage.completion_tokens };
  },
  async stream() {
    const stream = await client.chat.completions.create(body(asked.question, { stream: true, stream_options: { include_usage: true } }));
    const told = { text: '', finish: null, tokens: null, pieces: 0 };
    for await (const chunk of stream) {
      const [choice] = chunk.choices;
      if (choice?.delta.content) { told.text += choice.delta.content; told.pieces += 1; }
      told.finish = choice?.finish_reason ?? told.finish;
      told.tokens = chunk.usage?.completion_tokens ?? told.tokens;
    }
    return told;
  },
  async runner() {
    const runner = client.chat.completions.stream(body(asked.question));
    return { text: await runner.finalContent() };
  },
  async completions() {
    const stream = await client.completions.create({ model: asked.model, prompt: asked.question, max_tokens: asked.most, stream: true });
    let text = '';
    for await (const chunk of stream) text += chunk.choices[0]?.text ?? '';
    return { text };
  },
  async schema() {
    const reply = await client.chat.completions.parse(body(asked.json, { max_tokens: 60, response_format: zodResponseFormat(weather, 'weather') }));
    return reply.choices[0].message.parsed;
  },
  async tool() {
    const tools = [{ type: 'function', function: { name: 'weather', strict: true, parameters: z.toJSONSchema(place) } }];
    const asking = body(asked.call, { max_tokens: 80, tools, tool_choice: asked.is_forced ? 'required' : 'auto', parallel_tool_calls: false });
    const whole = await client.chat.completions.create(asking);
    const streamed = await client.chat.completions.stream(asking).finalMessage();
    const [call] = streamed.tool_calls;
    const messages = [...asking.messages, streamed, { role: 'tool', tool_call_id: call.id, content: '-3 degrees' }];
    const after = await client.chat.completions.create({ ...asking, messages, tool_choice: 'none' });
    const plain = ({ function: { name, arguments: text } }) => ({ name, input: JSON.parse(text) });
    return { whole: whole.choices[0].message.tool_calls.map(plain), streamed: [plain(call)], finish: whole.choices[0].finish_reason, after: after.choices[0].finish_reason };
  },
  async cancel() {
    return cancelled(async () => {
      const pieces = await client.chat.completions.create(body(asked.endless, { stream: true, max_tokens: 400 }));
      return { pieces, abort: () => pieces.controller.abort() };
    });
  },
  async atOnce() {
    const replies = await Promise.all(Array.from({ length: 8 }, () => client.chat.completions.create(body(asked.question))));
    return [...new Set(replies.map((reply) => reply.choices[0].message.content))];
  },
  async unknownModel() {
    return failure(() => client.chat.completions.create(body('x', { model: 'nobody' })));
  },
  async badField() {
    return failure(() => client.chat.completions.create(body('x', { temperature: -1 })));
  },
});
