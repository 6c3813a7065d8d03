// Anthropic's own client, by its runner of tools; the runner sends each turn's blocks back as they came.
import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { z } from 'zod';
import { asked } from './cases.mjs';
import { reportConversations } from './conversations.mjs';

const client = new Anthropic({ baseURL: asked.url, apiKey: 'any', maxRetries: 0 });
const inputSchema = z.object({ city: z.enum(['Oslo', 'Lima']) });

await reportConversations(async (question, stream, run) => {
  const tools = [betaZodTool({ name: 'weather', description: 'The weather in a city.', inputSchema, run })];
  const messages = [{ role: 'user', content: question }];
  const turns = [];
  for await (const turn of client.beta.messages.toolRunner({ model: asked.model, max_tokens: 400, stream, messages, tools })) {
    turns.push(stream ? await turn.finalMessage() : turn);
  }
  const blocks = turns.flatMap((turn) => turn.content);
  const said = (type) => blocks.map((block) => block[type] ?? '').join('');
  return { answer: said('text'), thought: said('thinking') };
});
