'use strict';
// How messages look. A view is made once per message and brought up to date as the message grows.

/** What a person may do about a message; the chat gives them. */
const NO_ACTIONS = { regenerate() {}, sendResults() {}, openKey() {} };

class MessageView {
  constructor(message, actions = NO_ACTIONS) {
    this.message = message;
    this.actions = actions;
    this.element = make('li', { className: `message ${message.role}` });
    if (message.role === 'user') this.buildUser();
    else if (message.role === 'tool') this.buildTool();
    else this.buildReply();
  }

  buildUser() {
    this.element.append(
      make('span', { className: 'hidden' }, 'You: '),
      make('div', { className: 'bubble' }, this.message.content),
      make('div', { className: 'foot' }, makeCopyButton(() => this.message.content)),
    );
  }

  buildTool() {
    this.element.append(make('p', { className: 'label' }, `Result of ${this.message.name || 'the tool'}`), make('pre', { tabIndex: 0 }, this.message.content));
  }

  buildReply() {
    this.summary = make('summary');
    this.thoughts = make('div', { className: 'markdown' });
    this.reasoning = make('details', { className: 'reasoning', hidden: true }, this.summary, this.thoughts);
    this.reasoning.addEventListener('toggle', () => this.updateThoughts());
    this.waiting = make('p', { className: 'waiting', 'aria-hidden': 'true' }, make('span'), make('span'), make('span'));
    this.content = make('div', { className: 'markdown' });
    this.calls = make('div', { className: 'calls' });
    this.trouble = make('div', { className: 'trouble', hidden: true });
    this.facts = make('span', { className: 'facts' });
    this.ignored = make('p', { className: 'hint', hidden: true });
    this.again = makeButton('Regenerate', () => this.actions.regenerate());
    this.copy = makeCopyButton(() => this.message.content);
    this.foot = make('div', { className: 'foot' }, this.copy, this.again, this.facts);
    this.element.append(make('span', { className: 'hidden' }, 'Answer: '), this.reasoning, this.waiting, this.content, this.calls, this.trouble, this.ignored, this.foot);
  }

  /** isLast: nothing follows it. isLive: it still grows. */
  update({ isLast, isLive }) {
    if (this.message.role !== 'assistant') return;
    const reply = this.message;
    this.element.classList.toggle('live', isLive);
    this.element.setAttribute('aria-busy', String(isLive));
    this.waiting.hidden = !isLive || reply.firstMs !== null;
    this.updateReasoning(isLive);
    renderMarkdown(this.content, reply.content);
    this.updateCalls(isLast, isLive);
    this.updateTrouble(isLast, isLive);
    this.ignored.hidden = isLive || !reply.ignored;
    setText(this.ignored, `Ignored by the server: ${reply.ignored}`);
    this.foot.hidden = isLive;
    this.copy.hidden = !reply.content;
    this.again.hidden = !isLast || reply.error !== null;
    setText(this.facts, isLive ? '' : [endOf(reply), factsOf(reply)].filter(Boolean).join(' '));
  }

  updateReasoning(isLive) {
    const reply = this.message;
    this.reasoning.hidden = !reply.reasoning;
    if (!reply.reasoning) return;
    const isThinking = isLive && reply.thinkingMs === null;
    const spentMs = reply.thinkingMs ?? (reply.endedMs ?? Date.now()) - reply.firstMs;
    const isShort = spentMs < 1000;
    const spent = formatSeconds(spentMs / 1000);
    if (isThinking) setText(this.summary, isShort ? 'Thinking' : `Thinking, ${spent} so far`);
    else setText(this.summary, `Thought for ${isShort ? 'a moment' : spent}`);
    this.reasoning.classList.toggle('thinking', isThinking);
    this.updateThoughts();
  }

  /** Reasoning can be long: it is laid out only while somebody looks. */
  updateThoughts() {
    if (this.reasoning.open) renderMarkdown(this.thoughts, this.message.reasoning);
  }

  updateCalls(isLast, isLive) {
    const reply = this.message;
    this.cards ??= [];
    reply.toolCalls.forEach((call, index) => {
      const card = this.cards[index] ??= this.addCall(call);
      setText(card.name, call.name || '…');
      setText(card.code, isLive ? call.arguments : prettyJson(call.arguments));
    });
    const isAsking = isLast && !isLive && reply.toolCalls.length > 0 && reply.error === null;
    if (isAsking && !this.results) this.calls.append(this.results = this.makeResults());
    if (!isAsking && this.results) { this.results.remove(); this.results = null; }
  }

  addCall() {
    const name = make('code');
    const code = make('code');
    this.calls.append(make('div', { className: 'call' }, make('p', { className: 'label' }, 'Calls ', name), make('pre', { tabIndex: 0 }, code)));
    return { name, code };
  }

  /** Where a person answers in a tool's place. */
  makeResults() {
    const fields = this.message.toolCalls.map((call) => make('textarea', { rows: 2, className: 'mono', 'aria-label': `Result of ${call.name}`, placeholder: `Result of ${call.name}` }));
    const send = makeButton(fields.length > 1 ? 'Send results' : 'Send result', () => this.actions.sendResults(this.message, fields.map((field) => field.value)));
    return make('div', { className: 'results' }, ...fields, send);
  }

  updateTrouble(isLast, isLive) {
    const { error } = this.message;
    this.trouble.hidden = error === null || isLive;
    if (error === null || (this.shownError === error && this.shownLast === isLast)) return;
    this.shownError = error;
    this.shownLast = isLast;
    this.trouble.replaceChildren(make('strong', {}, error.title), make('p', {}, error.text));
    if (error.code === 'invalid_api_key') this.trouble.append(makeButton('Set the key', () => this.actions.openKey()));
    if (isLast) this.trouble.append(makeButton('Try again', () => this.actions.regenerate()));
  }
}

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The messages of one chat, in order; keeps to its end while the reader is there. */
class Conversation {
  constructor(list, scroller, actions) {
    this.list = list;
    this.scroller = scroller;
    this.actions = actions;
    this.views = [];
    this.isAtEnd = true;
    this.lastTop = 0;
    this.toEnd = byId('to-end');
    scroller.addEventListener('scroll', () => this.noticeScroll(), { passive: true });
    this.toEnd.addEventListener('click', () => this.goToEnd());
    const sizes = new ResizeObserver(() => this.keepAtEnd());
    sizes.observe(list);
    sizes.observe(scroller);
  }

  /** Shows these messages; `live` is the one that still grows, or null. Views of messages that stay are kept. */
  show(messages, live = null) {
    const known = new Map(this.views.map((view) => [view.message, view]));
    this.views = messages.map((message) => known.get(message) ?? new MessageView(message, this.actions));
    const kept = new Set(this.views);
    for (const view of known.values()) if (!kept.has(view)) view.element.remove();
    this.views.forEach((view, index) => {
      if (this.list.children[index] !== view.element) this.list.insertBefore(view.element, this.list.children[index] ?? null);
      view.update({ isLast: index === messages.length - 1, isLive: view.message === live });
    });
  }

  /** Brings the last message up to date: it is the only one that grows. */
  grow(isLive) {
    this.views.at(-1)?.update({ isLast: true, isLive });
  }

  /** Only a person scrolls up; a text that outgrows the window between two events is no reason to let go of its end. */
  noticeScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    if (scrollHeight - scrollTop - clientHeight < 48) this.isAtEnd = true;
    else if (scrollTop < this.lastTop) this.isAtEnd = false;
    this.lastTop = scrollTop;
    this.toEnd.hidden = this.isAtEnd;
  }

  keepAtEnd() {
    if (this.isAtEnd) this.scroller.scrollTop = this.scroller.scrollHeight;
    else this.noticeScroll();
  }

  goToEnd() {
    this.isAtEnd = true;
    this.keepAtEnd();
    this.toEnd.hidden = true;
  }
}
