'use strict';
// The live view of the engine: /stats once a second while the page is seen, and two short histories.

const EVERY_MS = 1000;
const HISTORY = 120;
// As the frontend judges it: no heartbeat for longer means that nobody is there.
const SILENT_S = 3;
const STUCK_MS = 2000;

const PHASES = {
  ready: 'ready', starting: 'starting', loading: 'loading the model', warming: 'warming up', draining: 'finishing its work',
  stopping: 'stopping', failed: 'failed', unreachable: 'not running', silent: 'silent', connecting: 'connecting',
  incompatible: 'of another version', offline: 'no answer', locked: 'asks for a key',
};

/** The last values of one figure, as a line. */
class Sparkline {
  constructor(label, unit) {
    this.label = label;
    this.unit = unit;
    this.values = [];
    this.line = makeSvg('polyline', { class: 'line' });
    this.area = makeSvg('polygon', { class: 'area' });
    this.element = makeSvg('svg', { viewBox: `0 0 ${HISTORY - 1} 32`, preserveAspectRatio: 'none', class: 'spark', role: 'img' }, this.area, this.line);
    this.redraw();
  }

  push(value) {
    this.values.push(value);
    if (this.values.length > HISTORY) this.values.shift();
    this.redraw();
  }

  redraw() {
    const top = Math.max(1e-9, ...this.values);
    const first = HISTORY - this.values.length;
    const points = this.values.map((value, index) => `${first + index},${(30 - (28 * value) / top).toFixed(1)}`);
    this.line.setAttribute('points', points.join(' '));
    this.area.setAttribute('points', points.length ? `${first},32 ${points.join(' ')} ${HISTORY - 1},32` : '');
    const now = this.values.at(-1) ?? 0;
    this.element.setAttribute('aria-label', `${this.label} over the last two minutes: now ${formatNumber(now)} ${this.unit}, at most ${formatNumber(this.values.length ? top : 0)}`);
  }
}

/** Asks, remembers, tells: `onstate` gets {phase, isReady, detail} whenever one of them changes. */
class EngineWatch {
  constructor(server, view, onstate) {
    this.server = server;
    this.view = view;
    this.onstate = onstate;
    this.state = null;
    this.timer = 0;
    this.turn = 0;
    document.addEventListener('visibilitychange', () => this.wake());
    this.wake();
  }

  wake() {
    clearTimeout(this.timer);
    if (!document.hidden) this.look();
  }

  /** Looks now, and again a while after; an answer that a later look overtook is dropped. */
  async look() {
    clearTimeout(this.timer);
    const turn = this.turn += 1;
    const found = await this.server.stats().catch((error) => error);
    if (turn !== this.turn) return;
    if (!document.hidden) this.timer = setTimeout(() => this.look(), EVERY_MS);
    if (found instanceof ServerError) {
      this.view.showNothing();
      this.tell({ phase: found.status === 401 ? 'locked' : 'offline', isReady: false, detail: found.message });
    } else if (found instanceof Error) {
      // A bug of the page is no silence of the server.
      throw found;
    } else {
      const { phase, ready, detail } = found.frontend;
      this.tell({ phase, isReady: ready, detail });
      this.view.show(found);
    }
  }

  tell(state) {
    const was = this.state;
    this.state = state;
    if (!was || was.phase !== state.phase || was.isReady !== state.isReady || was.detail !== state.detail) this.onstate(state, was);
  }
}

class EngineView {
  constructor(place) {
    this.place = place;
    this.speed = new Sparkline('Tokens a second', 'a second');
    this.gap = new Sparkline('Decode gap', 'milliseconds');
    this.gaps = null;
    this.figures = new Map();
    this.build();
  }

  build() {
    this.slots = make('div', { className: 'slots', role: 'img' });
    this.memoryBar = make('div', { className: 'meter', role: 'img' }, make('span', { className: 'weights' }), make('span', { className: 'kv' }), make('span', { className: 'other' }));
    this.place.append(
      make('p', { className: 'model' }, this.figure('model'), make('span', { className: 'hint' }, this.figure('about'))),
      this.trouble = make('p', { className: 'wrong', hidden: true }),
      make('div', { className: 'gauge' }, this.head('Rows', 'rows'), this.slots, make('p', { className: 'hint' }, this.figure('queue'))),
      make('div', { className: 'gauge' }, this.head('Tokens a second', 'speed'), this.speed.element),
      make('div', { className: 'gauge' }, this.head('Decode gap', 'gap'), this.gap.element, make('p', { className: 'hint' }, this.figure('age'))),
      make('div', { className: 'gauge' }, this.head('Memory', 'memory'), this.memoryBar, make('p', { className: 'hint' }, this.figure('parts'))),
      this.list = make('dl'),
    );
  }

  head(label, name) {
    return make('div', { className: 'gauge-head' }, make('h3', {}, label), this.figure(name));
  }

  /** The place of one figure. */
  figure(name) {
    const element = make('span', { className: `figure ${name}` }, '–');
    this.figures.set(name, element);
    return element;
  }

  set(name, text) {
    setText(this.figures.get(name), text);
  }

  showNothing() {
    this.place.classList.add('stale');
  }

  show(stats) {
    const { engine, engine_silent_s: silentS, frontend } = stats;
    this.place.classList.toggle('stale', engine === null || silentS > SILENT_S);
    const trouble = frontend.ready ? '' : frontend.detail;
    this.trouble.hidden = !trouble;
    setText(this.trouble, trouble ? sentence(trouble) : '');
    if (engine === null) return;
    const isAlive = silentS <= SILENT_S;
    this.showModel(engine);
    this.showRows(engine, stats.limits);
    this.showSpeed(engine, isAlive);
    this.showMemory(engine);
    this.showCounters(stats);
  }

  showModel({ model, batching }) {
    this.set('model', model?.id ?? 'no model yet');
    const facts = model ? [model.dtype, model.device, model.context_length ? `${model.context_length.toLocaleString('en')} tokens of context` : ''] : [];
    if (batching && batching.mode !== 'batch') facts.push(`one request at a time: ${batching.reason}`);
    this.set('about', facts.filter(Boolean).join(' · '));
  }

  showRows({ rows, model }, limits) {
    const most = limits?.max_rows || model?.max_rows || 0;
    const live = rows.decoding + rows.prefilling;
    this.set('rows', most ? `${live} of ${most}` : String(live));
    const kinds = [...Array(rows.decoding).fill('decoding'), ...Array(rows.prefilling).fill('prefilling')];
    while (kinds.length < Math.min(most, 64)) kinds.push('free');
    const shown = kinds.slice(0, 64);
    while (this.slots.children.length > shown.length) this.slots.lastElementChild.remove();
    while (this.slots.children.length < shown.length) this.slots.append(make('span'));
    this.slots.style.gridTemplateColumns = `repeat(${Math.min(16, Math.max(1, shown.length))}, 1fr)`;
    shown.forEach((kind, index) => { if (this.slots.children[index].className !== kind) this.slots.children[index].className = kind; });
    const words = `${rows.decoding} decoding, ${rows.prefilling} reading their prompt, ${rows.waiting} waiting${rows.waiting_for_memory ? ' for memory' : ''}${limits ? ` (at most ${limits.max_waiting})` : ''}`;
    this.slots.setAttribute('aria-label', words);
    this.set('queue', words);
  }

  showSpeed({ tokens, step }, isAlive) {
    const speed = isAlive ? tokens.generated_per_s : 0;
    const gapMs = isAlive ? this.meanGap(step.gaps_ms) : 0;
    this.speed.push(speed);
    this.gap.push(gapMs);
    this.set('speed', formatNumber(speed));
    this.set('gap', gapMs ? `${formatNumber(gapMs)} ms` : 'idle');
    const isStuck = step.age_ms > STUCK_MS;
    this.figures.get('age').classList.toggle('wrong', isStuck);
    this.set('age', step.age_ms ? `The running turn is ${formatSeconds(step.age_ms / 1000)} old${isStuck ? ', longer than it should be' : ''}` : 'Nothing is running');
  }

  /** Between two tokens, since the last look. */
  meanGap(gaps) {
    if (!gaps) return 0;
    const now = { sum: gaps.sum, count: gaps.counts.reduce((total, count) => total + count, 0) };
    const was = this.gaps;
    this.gaps = now;
    return was && now.count > was.count ? (now.sum - was.sum) / (now.count - was.count) : 0;
  }

  showMemory({ memory, prefix }) {
    // The budget is over all that rows take and prefixes; an engine before it had one had the prefixes' limit.
    const budget = memory.budget_bytes || prefix?.limit_bytes;
    const ceiling = budget ? memory.weights_bytes + budget : 0;
    // Shares of an unknown whole would look like a full machine.
    this.memoryBar.hidden = !ceiling;
    const other = Math.max(0, memory.active_bytes - memory.weights_bytes - memory.kv_bytes);
    const shares = [memory.weights_bytes, memory.kv_bytes, other];
    shares.forEach((bytes, index) => { this.memoryBar.children[index].style.width = `${Math.min(100, (100 * bytes) / (ceiling || 1))}%`; });
    const total = ceiling ? `${formatBytes(memory.active_bytes)} of ${formatBytes(ceiling)}` : formatBytes(memory.active_bytes);
    this.set('memory', total);
    this.memoryBar.setAttribute('aria-label', `${total} in use`);
    this.set('parts', `Weights ${formatBytes(memory.weights_bytes)}, KV caches ${formatBytes(memory.kv_bytes)}, peak ${formatBytes(memory.peak_bytes)}`);
  }

  showCounters({ engine, frontend }) {
    const { counters, tokens } = engine;
    const pairs = [
      ['Phase', PHASES[frontend.phase] ?? frontend.phase],
      ['Up for', formatDuration(engine.uptime_s)],
      ['Restarts', String(engine.restarts)],
      ['Finished', counters.finished.toLocaleString('en')],
      ['Cancelled', counters.cancelled.toLocaleString('en')],
      ['Failed', (counters.failed + counters.rejected).toLocaleString('en')],
      ...(counters.preemptions ? [['Paused for memory', counters.preemptions.toLocaleString('en')]] : []),
      ['Tokens written', tokens.generated_total.toLocaleString('en')],
      ['Tokens read', tokens.prompt_total.toLocaleString('en')],
      ...prefixPairs(engine),
      ['Frontends', String(engine.frontends.length)],
    ];
    while (this.list.children.length > pairs.length * 2) this.list.lastElementChild.remove();
    pairs.forEach(([name, value], index) => {
      if (!this.list.children[index * 2]) this.list.append(make('dt'), make('dd'));
      setText(this.list.children[index * 2], name);
      setText(this.list.children[index * 2 + 1], value);
    });
  }
}

/** Shared prefixes, where the engine tells of them. */
function prefixPairs(engine) {
  const { prefix } = engine;
  if (!prefix?.limit_bytes) return [];
  const share = prefix.queried_tokens ? Math.round((100 * prefix.hit_tokens) / prefix.queried_tokens) : 0;
  return [
    ['Prefix hits', `${prefix.hits} of ${prefix.hits + prefix.misses}`],
    ['Prompt reused', `${share} %`],
    ['Prefixes kept', `${prefix.entries}, ${formatBytes(prefix.size_bytes)}`],
  ];
}

function formatBytes(bytes) {
  if (!bytes) return '0';
  const power = Math.min(4, Math.floor(Math.log(bytes) / Math.log(1000)));
  const value = bytes / 1000 ** power;
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toFixed(1)} ${['B', 'kB', 'MB', 'GB', 'TB'][power]}`;
}

function formatDuration(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}
