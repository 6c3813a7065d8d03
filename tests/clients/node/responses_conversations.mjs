// Vercel's AI SDK through its own OpenAI provider, which must be told that the model thinks: it goes by OpenAI's names.
import { createOpenAI } from '@ai-sdk/openai';
import { carriedBy } from './ai_steps.mjs';
import { asked } from './cases.mjs';
import { reportConversations } from './conversations.mjs';

const provider = createOpenAI({ baseURL: `${asked.url}/v1`, apiKey: 'any' });
await reportConversations(carriedBy(provider(asked.model), { openai: { forceReasoning: true, reasoningSummary: 'auto' } }));
