'use strict';
// The chat: what is sent, what comes back, and which conversation is on the page.

const MODEL = 'convoy.model';

class Chat {
  constructor({ server, store, settings, panels }) {
    this.server = server;
    this.store = store;
    this.settings = settings;
    this.panels = panels;
    this.live = null;
    this.stopper = null;
    this.frame = 0;
    this.isFull = false;
    this.chat = makeChat();
    this.conversation = new Conversation(byId('messages'), byId('scroller'), {
      regenerate: () => this.regenerate(),
      sendResults: (message, texts) => this.sendResults(message, texts),
      openKey: () => this.openSetting('key'),
    });
    this.composer = new Composer((text) => this.send(text), () => this.stop());
    byId('new-chat').addEventListener('click', () => this.begin());
    window.addEventListener('hashchange', () => this.openFromAddress());
    window.addEventListener('storage', (event) => this.hearOtherTab(event));
    window.addEventListener('pagehide', () => { if (this.live) this.keep(); });
    this.openFromAddress();
  }

  /** The chat that the address names; a fresh one when it names none that is here. */
  openFromAddress() {
    const id = location.hash.slice(1);
    if (id && id === this.chat.id) return;
    this.stop();
    this.chat = (id && this.store.load(id)) || makeChat();
    if (id && id !== this.chat.id) history.replaceState(null, '', location.pathname);
    this.render();
    this.conversation.goToEnd();
  }

  begin() {
    this.stop();
    this.chat = makeChat();
    history.pushState(null, '', location.pathname);
    this.render();
    this.panels.closeAll();
    this.composer.focus();
  }

  open(id) {
    location.hash = id;
    this.panels.closeAll();
    this.composer.focus();
  }

  remove(id) {
    const kept = this.store.load(id);
    if (id === this.chat.id) this.begin();
    this.store.remove(id);
    this.renderList();
    byId('new-chat').focus();
    toast('Chat deleted.', 'Undo', () => {
      if (!kept) return;
      kept.revision = null;
      this.store.save(kept);
      this.renderList();
    });
  }

  hearOtherTab({ key }) {
    if (key === null || key.startsWith(TITLE)) this.renderList();
    if (this.live || key !== CHAT + this.chat.id) return;
    const kept = this.store.load(this.chat.id);
    if (kept) this.chat = kept;
    else this.chat.revision = null;
    this.render();
  }

  /** Sends what a person wrote; false when it must be changed, or wait. */
  send(text) {
    if (this.live) {
      toast('An answer is on its way. Esc stops it.');
      return false;
    }
    return this.add([{ role: 'user', content: text }]);
  }

  sendResults(message, texts) {
    this.add(message.toolCalls.map((call, index) => ({ role: 'tool', callId: call.id, name: call.name, content: texts[index] })));
  }

  add(messages) {
    const fields = this.requestFields();
    if (!fields) return false;
    this.chat.messages.push(...messages);
    this.answer(fields);
    return true;
  }

  regenerate() {
    const fields = this.live ? null : this.requestFields();
    if (!fields) return;
    while (this.chat.messages.at(-1)?.role === 'assistant') this.chat.messages.pop();
    this.composer.focus();
    this.answer(fields);
  }

  /** The settings as fields of a request; null when one of them is wrong, and then it is shown. */
  requestFields() {
    try {
      return this.settings.fields();
    } catch (error) {
      if (!(error instanceof SettingError)) throw error;
      this.openSetting(error.field);
      this.settings.judge(this.settings.form.elements[error.field]);
      return null;
    }
  }

  openSetting(name) {
    this.panels.open('settings');
    this.settings.form.elements[name].focus();
  }

  async answer(fields) {
    const messages = wireMessages(this.chat.messages, this.settings.system);
    const model = byId('model').disabled ? null : byId('model').value;
    const reply = makeReply(model);
    this.live = reply;
    this.stopper = new AbortController();
    this.chat.messages.push(reply);
    this.render();
    this.conversation.goToEnd();
    this.keep();
    announce('Answering.');
    const beat = setInterval(() => { this.keep(); this.schedule(); }, BEAT_MS);
    try {
      await this.stream({ ...fields, model, messages, stream: true, stream_options: { include_usage: true } }, reply);
    } finally {
      clearInterval(beat);
      this.finish(reply);
    }
  }

  async stream(body, reply) {
    try {
      await this.server.chat(body, this.stopper.signal, {
        onhead: (ignored) => { reply.ignored = ignored; },
        onframe: (frame) => { addFrame(reply, frame); this.schedule(); },
      });
      reply.finish ??= 'unknown';
    } catch (error) {
      if (error.name === 'AbortError') return;
      reply.finish = 'failed';
      const known = error instanceof ServerError ? error : new ServerError(`This page could not read the answer: ${error.message}`, { status: 200 });
      reply.error = { ...describeError(known), code: known.code };
      if (known !== error) throw error;
    }
  }

  finish(reply) {
    if (this.live !== reply) return;
    this.end();
    if (reply.error) announce(`${reply.error.title}. ${reply.error.text}`);
    else announce(reply.content ? `Answer: ${reply.content.slice(0, 1500)}` : endOf(reply) || 'Answered.');
  }

  /** Ends the answer that is being written: its connection closes, and the engine drops its row. */
  stop() {
    if (!this.live) return false;
    this.stopper.abort();
    this.live.finish = 'stopped';
    this.end();
    announce('Stopped.');
    return true;
  }

  /** The live answer is over. Nothing waits for its connection: another chat may be on the page a moment later. */
  end() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.live.endedMs = Date.now();
    this.live = null;
    this.render();
    this.keep();
  }

  /** Draws at most once a frame, however many pieces come. */
  schedule() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.conversation.grow(true);
    });
  }

  keep() {
    if (this.live) this.live.beatMs = Date.now();
    const before = this.chat.id;
    const outcome = this.store.save(this.chat);
    if (outcome === 'copied') toast('This chat went on in another tab. Here it goes on as a copy.');
    if (outcome === 'full' && !this.isFull) toast('The browser has no room left: this chat is not kept. Delete old chats.');
    this.isFull = outcome === 'full';
    if (outcome !== 'full' && (before !== this.chat.id || location.hash.slice(1) !== before)) {
      history.replaceState(null, '', `#${this.chat.id}`);
      this.renderList();
    }
  }

  render() {
    const { messages } = this.chat;
    byId('empty').hidden = messages.length > 0;
    this.conversation.show(messages, this.live);
    this.composer.setLive(this.live !== null);
    document.title = messages.length ? `${titleOf(this.chat)} · Convoy` : 'Convoy';
    this.renderList();
  }

  renderList() {
    const chats = this.store.list();
    const shown = JSON.stringify([this.chat.id, chats.map(({ id, title }) => [id, title])]);
    // Another tab's answer is kept once a second: a list that is the same keeps its focus.
    if (shown === this.shownList) return;
    this.shownList = shown;
    byId('chat-list').replaceChildren(...chats.map(({ id, title }) => {
      const open = make('button', { type: 'button', className: 'open', onclick: () => this.open(id) }, title ?? 'Chat');
      if (id === this.chat.id) open.setAttribute('aria-current', 'true');
      const remove = make('button', { type: 'button', className: 'remove', title: 'Delete', 'aria-label': `Delete the chat ${title}`, onclick: () => this.remove(id) }, '×');
      return make('li', {}, open, remove);
    }));
  }
}

/** The field a person writes in, and its two buttons. `onsend` says whether the text was taken. */
class Composer {
  constructor(onsend, onstop) {
    this.onsend = onsend;
    this.field = byId('prompt');
    this.sendButton = byId('send');
    this.stopButton = byId('stop');
    byId('composer').addEventListener('submit', (event) => { event.preventDefault(); this.submit(); });
    this.stopButton.addEventListener('click', () => { onstop(); this.focus(); });
    this.field.addEventListener('input', () => this.fit());
    this.field.addEventListener('keydown', (event) => this.hearKey(event));
  }

  hearKey(event) {
    // While an input method composes, Enter chooses a word.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.submit();
  }

  submit() {
    const text = this.field.value;
    if (!text.trim() || !this.onsend(text)) return;
    this.field.value = '';
    this.fit();
  }

  fit() {
    this.sendButton.disabled = !this.field.value.trim();
    this.field.style.height = 'auto';
    this.field.style.height = `${this.field.scrollHeight}px`;
  }

  setLive(isLive) {
    const hadFocus = document.activeElement === this.stopButton || document.activeElement === this.sendButton;
    this.stopButton.hidden = !isLive;
    this.sendButton.hidden = isLive;
    if (hadFocus) this.focus();
  }

  focus() {
    this.field.focus({ preventScroll: true });
  }
}
