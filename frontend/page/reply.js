'use strict';
// One answer as it grows: plain data that the store can keep, and the body that asks for it. Knows no element.

const BEAT_MS = 1000;

/** An assistant's message. finish: the server's reason, 'stopped' (by hand), 'failed', or null while it grows. */
function makeReply(model) {
  return {
    role: 'assistant', model, content: '', reasoning: '', toolCalls: [], finish: null, error: null, ignored: '',
    tokens: null, startedMs: Date.now(), thinkingMs: null, firstMs: null, endedMs: null, beatMs: 0,
  };
}

/** Adds one frame of OpenAI's stream. Only the first choice is shown: the settings refuse `n` over 1. */
function addFrame(reply, frame) {
  if (frame.usage) reply.tokens = { prompt: frame.usage.prompt_tokens, completion: frame.usage.completion_tokens, cached: frame.usage.prompt_tokens_details?.cached_tokens ?? 0 };
  const choice = frame.choices?.find((found) => found.index === 0);
  if (!choice) return;
  const delta = choice.delta ?? {};
  const thought = delta.reasoning_content ?? delta.reasoning;
  if (thought || delta.content || delta.tool_calls) reply.firstMs ??= Date.now();
  if (thought) reply.reasoning += thought;
  if ((delta.content || delta.tool_calls) && reply.reasoning) reply.thinkingMs ??= Date.now() - reply.firstMs;
  if (delta.content) reply.content += delta.content;
  if (delta.refusal) reply.content += delta.refusal;
  for (const piece of delta.tool_calls ?? []) addCall(reply.toolCalls, piece);
  if (choice.finish_reason) reply.finish = choice.finish_reason;
}

/** A piece of a tool call: the first one of an index names it, the others add to its arguments. */
function addCall(calls, piece) {
  const index = piece.index ?? calls.length;
  let call = calls.find((found) => found.index === index);
  if (!call) {
    call = { index, id: '', name: '', arguments: '' };
    calls.push(call);
    calls.sort((one, other) => one.index - other.index);
  }
  if (piece.id) call.id = piece.id;
  if (piece.function?.name) call.name += piece.function.name;
  if (piece.function?.arguments) call.arguments += piece.function.arguments;
}

/** Tokens per second from the first token to the last; null when too few or too quick to tell. */
function tokensPerSecond(reply) {
  const spentMs = (reply.endedMs ?? 0) - (reply.firstMs ?? Infinity);
  return reply.tokens && reply.tokens.completion > 1 && spentMs > 50 ? ((reply.tokens.completion - 1) * 1000) / spentMs : null;
}

/** The line under an answer. */
function factsOf(reply) {
  const facts = [];
  if (reply.tokens) {
    facts.push(`${reply.tokens.completion} token${reply.tokens.completion === 1 ? '' : 's'}`);
    const speed = tokensPerSecond(reply);
    if (speed !== null) facts.push(`${formatNumber(speed)} a second`);
  }
  if (reply.firstMs !== null) facts.push(`first after ${formatSeconds((reply.firstMs - reply.startedMs) / 1000)}`);
  if (reply.tokens?.cached) facts.push(`${reply.tokens.cached} of ${reply.tokens.prompt} prompt tokens reused`);
  return facts.join(' · ');
}

/** Why an answer ended, where that is not plain; '' where it is. */
function endOf(reply) {
  switch (reply.finish) {
    case 'stopped': return 'Stopped.';
    case 'length': return 'Cut off at the token limit.';
    case 'content_filter': return 'Withheld by the server.';
    case null: return isElsewhere(reply) ? 'Being written in another tab.' : 'Cut off: the page was closed.';
    default: return '';
  }
}

/** Whether another tab still writes this answer: it keeps it once a second. */
function isElsewhere(reply) {
  return reply.finish === null && Date.now() - reply.beatMs < 3 * BEAT_MS;
}

/** The conversation as OpenAI's messages. Failed and empty answers are no part of it, nor is past reasoning. */
function wireMessages(messages, system) {
  const told = system.trim() ? [{ role: 'system', content: system }] : [];
  for (const message of messages) {
    if (message.role === 'user') told.push({ role: 'user', content: message.content });
    else if (message.role === 'tool') told.push({ role: 'tool', tool_call_id: message.callId, content: message.content });
    else if (message.content || message.toolCalls.length) told.push(wireReply(message));
  }
  return told;
}

function wireReply(message) {
  const calls = message.toolCalls.map((call) => ({ id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments } }));
  return { role: 'assistant', content: message.content || null, ...(calls.length ? { tool_calls: calls } : {}) };
}

function formatNumber(value) {
  if (value >= 100) return Math.round(value).toLocaleString('en');
  return value >= 10 ? value.toFixed(0) : value.toFixed(1);
}

function formatSeconds(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  return seconds < 90 ? `${Math.round(seconds)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
