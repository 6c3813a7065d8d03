'use strict';
// What this browser keeps: chats, settings, the key, the colours. Each chat has a storage key of its own and a
// revision, so that two tabs never write over each other: whoever finds another revision goes on in a copy.

const CHAT = 'convoy.chat.';
const TITLE = 'convoy.title.';
const TITLE_LENGTH = 60;

/** localStorage, or a Map where the browser forbids it. isLasting: whether a reload finds it again. */
class Keeper {
  constructor() {
    this.memory = new Map();
    try {
      localStorage.setItem('convoy.probe', '1');
      localStorage.removeItem('convoy.probe');
      this.isLasting = true;
    } catch {
      this.isLasting = false;
    }
  }

  get(key) {
    return this.isLasting ? localStorage.getItem(key) : this.memory.get(key) ?? null;
  }

  /** False when there is no room. */
  set(key, value) {
    if (!this.isLasting) { this.memory.set(key, value); return true; }
    try {
      localStorage.setItem(key, value);
      return true;
    } catch {
      return false;
    }
  }

  remove(key) {
    if (this.isLasting) localStorage.removeItem(key);
    else this.memory.delete(key);
  }

  keys() {
    return this.isLasting ? Object.keys(localStorage) : [...this.memory.keys()];
  }

  /** The JSON value under a key; `otherwise` when there is none, or none that can be read. */
  read(key, otherwise) {
    try {
      return JSON.parse(this.get(key)) ?? otherwise;
    } catch {
      return otherwise;
    }
  }

  write(key, value) {
    return this.set(key, JSON.stringify(value));
  }
}

function makeId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function makeChat() {
  return { id: makeId(), revision: null, messages: [] };
}

/** A stored message with every field it should have; the page that wrote it may have been an older one. */
function wholeMessage(message) {
  return message.role === 'assistant' ? { ...makeReply(''), ...message } : message;
}

/** What a chat is called: the beginning of its first message. */
function titleOf(chat) {
  const text = chat.messages.find((message) => message.role === 'user')?.content ?? '';
  const line = text.trim().split('\n')[0];
  return line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH).trimEnd()}…` : line || 'Chat';
}

class ChatStore {
  constructor(keeper) {
    this.keeper = keeper;
  }

  /** Every chat's id, title and time, newest first. */
  list() {
    return this.keeper.keys()
      .filter((key) => key.startsWith(TITLE))
      .map((key) => ({ id: key.slice(TITLE.length), ...this.keeper.read(key, {}) }))
      .sort((one, other) => (other.savedMs ?? 0) - (one.savedMs ?? 0));
  }

  /** The chat, or null when there is none, or what is there is no chat. */
  load(id) {
    const chat = this.keeper.read(CHAT + id, null);
    if (!Array.isArray(chat?.messages)) return null;
    const messages = chat.messages.filter((message) => typeof message?.content === 'string').map(wholeMessage);
    return { id, revision: chat.revision, messages };
  }

  /** Keeps a chat and changes its revision: 'kept', 'copied' (its id is another now) or 'full'. */
  save(chat) {
    let outcome = 'kept';
    const stored = this.keeper.read(CHAT + chat.id, null);
    if (stored && stored.revision !== chat.revision) {
      chat.id = makeId();
      outcome = 'copied';
    }
    const revision = makeId();
    if (!this.keeper.write(CHAT + chat.id, { revision, messages: chat.messages })) return 'full';
    chat.revision = revision;
    return this.keeper.write(TITLE + chat.id, { title: titleOf(chat), savedMs: Date.now() }) ? outcome : 'full';
  }

  remove(id) {
    this.keeper.remove(CHAT + id);
    this.keeper.remove(TITLE + id);
  }
}
