// OpenAI's own client, by its runner of tools: it calls the function, sends what it returned, and asks again.
import OpenAI from 'openai';
import { z } from 'zod';
import { asked } from './cases.mjs';
import { reportConversations } from './conversations.mjs';

const client = new OpenAI({ baseURL: `${asked.url}/v1`, apiKey: 'any', maxRetries: 0 });
const parameters = z.toJSONSchema(z.object({ city: z.enum(['Oslo', 'Lima']) }));

await reportConversations(async (question, stream, run) => {
  const weather = { name: 'weather', description: 'The weather in a city.', parameters, parse: JSON.parse, function: run };
  const messages = [{ role: 'user', content: question }];
  const runner = client.chat.completions.runTools({ model: asked.model, stream, messages, tools: [{ type: 'function', function: weather }] });
  let thought = '';
  // What OpenAI's API does not have, the runner does not add up.
  if (stream) runner.on('chunk', ({ choices: [choice] }) => { thought += choice?.delta.reasoning_content ?? ''; });
  else runner.on('message', (message) => { thought += message.reasoning_content ?? ''; });
  return { answer: await runner.finalContent(), thought };
});
