// The AI SDK's own loop: it calls the function, sends what it returned, and asks again, for both of its providers.
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

export function carriedBy(model, providerOptions = {}) {
  return async (prompt, isStreamed, execute) => {
    const weather = tool({ description: 'The weather in a city.', inputSchema: z.object({ city: z.enum(['Oslo', 'Lima']) }), execute });
    const asking = { model, maxRetries: 0, prompt, providerOptions, tools: { weather }, stopWhen: stepCountIs(4) };
    const result = isStreamed ? streamText(asking) : await generateText(asking);
    const steps = await result.steps;
    return { answer: await result.text, thought: steps.map((step) => step.reasoningText ?? '').join('') };
  };
}
