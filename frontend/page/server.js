'use strict';
// The server this page came from: its routes, its key, its errors in words a person can use.

/** A request that got no good answer. code: the server's word, or 'offline' when nothing answered. */
class ServerError extends Error {
  constructor(message, { status = 0, code = 'offline', retryAfterS = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterS = retryAfterS;
  }
}

const NO_ANSWER = 'The server does not answer. It may be stopped, or on its way back.';

/** Splits a stream's bytes into the contents of its events; a piece may end anywhere, inside a letter too. */
class SseDecoder {
  constructor() {
    this.decoder = new TextDecoder();
    this.rest = '';
    this.data = [];
  }

  /** The contents of the events that end within these bytes, in order. */
  push(bytes) {
    let text = this.rest + this.decoder.decode(bytes, { stream: true });
    // A carriage return at the end may be half of a line's end.
    const held = text.endsWith('\r') ? '\r' : '';
    if (held) text = text.slice(0, -1);
    const lines = text.split(/\r\n|\n|\r/);
    this.rest = lines.pop() + held;
    return lines.flatMap((line) => this.hear(line));
  }

  hear(line) {
    if (line === '') {
      const event = this.data.join('\n');
      const isEvent = this.data.length > 0;
      this.data = [];
      return isEvent ? [event] : [];
    }
    if (line.startsWith('data:')) this.data.push(line.slice(line[5] === ' ' ? 6 : 5));
    return [];
  }
}

class Server {
  constructor() {
    this.key = '';
  }

  headers() {
    return this.key ? { authorization: `Bearer ${this.key}` } : {};
  }

  async ask(path, options = {}) {
    try {
      const headers = { ...this.headers(), ...options.headers };
      return await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'same-origin', redirect: 'error' });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ServerError(NO_ANSWER);
    }
  }

  async json(path) {
    const response = await this.ask(path, { signal: AbortSignal.timeout(8000) });
    if (!response.ok) throw await refusal(response);
    try {
      return await response.json();
    } catch {
      throw new ServerError(NO_ANSWER);
    }
  }

  /** The names the server knows its model by. */
  async models() {
    return (await this.json('v1/models')).data;
  }

  async stats() {
    return this.json('stats');
  }

  /**
   * One streamed answer: `onframe` gets each frame as it comes, `onhead` the fields the server ignored.
   * Ends when the server said [DONE]; throws ServerError for anything less.
   */
  async chat(body, signal, { onhead, onframe }) {
    const response = await this.ask('v1/chat/completions', {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal,
    });
    if (!response.ok) throw await refusal(response);
    onhead(response.headers.get('x-convoy-ignored') ?? '');
    const decoder = new SseDecoder();
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await nextPiece(reader);
      if (done) throw new ServerError('The connection ended before the answer did.', { code: 'broken' });
      for (const event of decoder.push(value)) {
        if (event === '[DONE]') return;
        const frame = JSON.parse(event);
        if (frame.error) throw new ServerError(frame.error.message, { status: 200, code: frame.error.code ?? 'broken' });
        onframe(frame);
      }
    }
  }
}

async function nextPiece(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ServerError('The connection broke before the answer was whole.', { code: 'broken' });
  }
}

/** What an answer other than 200 says. */
async function refusal(response) {
  const retryAfter = Number.parseInt(response.headers.get('retry-after') ?? '', 10);
  const facts = { status: response.status, code: 'unknown', retryAfterS: Number.isNaN(retryAfter) ? null : retryAfter };
  try {
    const { error } = JSON.parse(await response.text());
    return new ServerError(error.message, { ...facts, code: error.code ?? 'unknown' });
  } catch {
    return new ServerError(`The server answered with status ${response.status}.`, facts);
  }
}

/** An error for a person: what happened, and what to do. */
function describeError(error) {
  const said = sentence(error.message);
  switch (error.code) {
    case 'offline': return { title: 'No answer from the server', text: 'It may be stopped, or on its way back. Your message is kept.' };
    case 'broken': return { title: 'The answer broke off', text: said };
    case 'queue_full': return { title: 'The server is full', text: 'Too many requests are waiting already. Try again in a moment.' };
    case 'invalid_api_key': return { title: 'The server asks for an API key', text: 'Set it, or correct it, under Settings. Your message is kept.' };
    case 'not_ready': return { title: 'The engine is not ready', text: said };
    case 'shutting_down': return { title: 'The server is stopping', text: said };
    case 'lease_lost': return { title: 'The engine lost touch', text: said };
    case 'request_quarantined': return { title: 'This request is set aside', text: said };
    case 'context_length_exceeded': return { title: 'The chat is too long for the model', text: `${said} A new chat begins afresh.` };
    case 'model_not_found': return { title: 'The server has no such model', text: said };
    case 'deadline_exceeded': return { title: 'It took too long', text: said };
    default:
  }
  if (error.status === 401) return { title: 'The server asks for an API key', text: said };
  if (error.status === 429) return { title: 'The server is full', text: said };
  if (error.status === 503) return { title: 'The engine is not ready', text: said };
  if (error.status === 200) return { title: 'The answer broke off', text: said };
  if (error.status >= 500) return { title: 'Something went wrong in the server', text: said };
  return { title: 'The server did not take this', text: said };
}

/** With a capital at its front and a stop at its end. */
function sentence(text) {
  const trimmed = String(text).trim();
  const capital = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(capital) ? capital : `${capital}.`;
}
