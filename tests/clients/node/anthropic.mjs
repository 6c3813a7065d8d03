// Anthropic's own client.
import Anthropic from '@anthropic-ai/sdk';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import { z } from 'zod';
import { asked, cancelled, failure, report } from './cases.mjs';

const client = new Anthropic({ baseURL: asked.url, apiKey: 'any', maxRetries: 0 });
const body = (content, fields = {}) => ({ model: asked.model, max_tokens: asked.most, messages: [{ role: 'user', content }], ...fields });
const weather = z.object({ city: z.enum(['Oslo', 'Lima']), isCold: z.boolean() });

await report({
  async whole() {
    const message = await client.messages.create(body(asked.question));
    return { text: message.content[0].text, finish: message.stop_reason, tokens: message.usage.output_tokens };
  },
  async stream() {
    const stream = client.messages.stream(body(asked.question));
    const told = { text: '', pieces: 0 };
    stream.on('text', (piece) => { told.text += piece; told.pieces += 1; });
    const message = await stream.finalMessage();
    return { ...told, finish: message.stop_reason, tokens: message.usage.output_tokens };
  },
  async schema() {
    const message = await client.messages.parse(body(asked.json, { max_tokens: 60, output_config: { format: zodOutputFormat(weather) } }));
    return message.parsed_output;
  },
  async tool() {
    const tools = [{ name: 'weather', input_schema: z.toJSONSchema(z.object({ city: z.enum(['Oslo', 'Lima']) })) }];
    const asking = body(asked.call, { max_tokens: 80, tools, tool_choice: { type: asked.is_forced ? 'any' : 'auto', disable_parallel_tool_use: true } });
    const whole = await client.messages.create(asking);
    const streamed = await client.messages.stream(asking).finalMessage();
    const called = streamed.content.find((block) => block.type === 'tool_use');
    const result = { role: 'user', content: [{ type: 'tool_result', tool_use_id: called.id, content: '-3 degrees' }] };
    const messages = [...asking.messages, { role: 'assistant', content: streamed.content }, result];
    const after = await client.messages.create({ ...asking, messages, tool_choice: { type: 'none' } });
    const plain = (message) => message.content.filter((block) => block.type === 'tool_use').map(({ name, input }) => ({ name, input }));
    return { whole: plain(whole), streamed: plain(streamed), finish: whole.stop_reason, after: after.stop_reason };
  },
  async cancel() {
    return cancelled(async () => {
      const stream = await client.messages.create(body(asked.endless, { stream: true, max_tokens: 400 }));
      return { pieces: stream, abort: () => stream.controller.abort() };
    });
  },
  async unknownModel() {
    return failure(() => client.messages.create(body('x', { model: 'nobody' })));
  },
});
