// Vercel's AI SDK through its provider for servers like this one.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { carriedBy } from './ai_steps.mjs';
import { asked } from './cases.mjs';
import { reportConversations } from './conversations.mjs';

const provider = createOpenAICompatible({ name: 'convoy', baseURL: `${asked.url}/v1`, apiKey: 'any' });
await reportConversations(carriedBy(provider(asked.model)));
