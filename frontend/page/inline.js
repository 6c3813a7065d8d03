'use strict';
// What stands in one line of Markdown: code, emphasis, links, breaks. One pass over the text; whatever does not
// close is plain text, and a search that found no end is not begun again, so that no text takes long.

const ESCAPABLE = new Set('\\`*_{}[]()#+-.!|<>~"\'$%&,/:;=?@^');
const BARE_LINK = /https?:\/\/[^\s<>"'`]+/y;
const LINK_TARGET = /\(\s*<?([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;

/** The nodes of a text. */
function inlineNodes(text, depth = 0, isInLink = false) {
  return new InlineReader(text, depth, isInLink).read();
}

class InlineReader {
  constructor(text, depth, isInLink) {
    this.text = text;
    this.depth = depth;
    this.isInLink = isInLink;
    this.at = 0;
    this.plain = '';
    this.nodes = [];
    this.unclosed = new Set();
  }

  read() {
    while (this.at < this.text.length) {
      if (!this.takeSpecial()) {
        this.plain += this.text[this.at];
        this.at += 1;
      }
    }
    this.flush();
    return this.nodes;
  }

  takeSpecial() {
    switch (this.text[this.at]) {
      case '\\': return this.takeEscape();
      case '\n': return this.takeBreak();
      case '`': return this.takeCode();
      case '*': case '_': case '~': return this.takeEmphasis();
      case '!': return !this.isInLink && this.text[this.at + 1] === '[' && this.takeLink(this.at + 1);
      case '[': return !this.isInLink && this.takeLink(this.at);
      case '<': return !this.isInLink && this.takeAngled();
      case 'h': return !this.isInLink && this.takeBareLink();
      default: return false;
    }
  }

  flush() {
    if (this.plain) this.nodes.push(document.createTextNode(this.plain));
    this.plain = '';
  }

  put(node, end) {
    this.flush();
    this.nodes.push(node);
    this.at = end;
    return true;
  }

  takeEscape() {
    const next = this.text[this.at + 1];
    if (next === '\n') { this.at += 1; return this.takeBreak(); }
    if (!ESCAPABLE.has(next)) return false;
    this.plain += next;
    this.at += 2;
    return true;
  }

  takeBreak() {
    this.plain = this.plain.trimEnd();
    let next = this.at + 1;
    while (this.text[next] === ' ' || this.text[next] === '\t') next += 1;
    return this.put(make('br'), next);
  }

  runLength(at) {
    let end = at;
    while (this.text[end] === this.text[at]) end += 1;
    return end - at;
  }

  takeCode() {
    const length = this.runLength(this.at);
    const begin = this.at + length;
    const end = this.findRun('`', length, begin);
    if (end === null) {
      this.plain += this.text.slice(this.at, begin);
      this.at = begin;
      return true;
    }
    let code = this.text.slice(begin, end).replaceAll('\n', ' ');
    if (/^ .*\S.* $/.test(code)) code = code.slice(1, -1);
    return this.put(make('code', {}, code), end + length);
  }

  /** Where the next run of exactly this length begins; null when there is none. */
  findRun(letter, length, from) {
    const key = letter + length;
    if (this.unclosed.has(key)) return null;
    let at = this.text.indexOf(letter, from);
    while (at !== -1) {
      const found = this.runLength(at);
      if (found === length) return at;
      at = this.text.indexOf(letter, at + found);
    }
    this.unclosed.add(key);
    return null;
  }

  takeEmphasis() {
    const letter = this.text[this.at];
    const length = this.runLength(this.at);
    const begin = this.at + length;
    const isMark = letter === '~' ? length === 2 : length <= 3;
    const end = isMark && this.canOpen(letter, begin) ? this.findClosing(letter, length, begin) : null;
    if (end === null) {
      this.plain += this.text.slice(this.at, begin);
      this.at = begin;
      return true;
    }
    let node = this.depth < MAX_NESTING ? inlineNodes(this.text.slice(begin, end), this.depth + 1, this.isInLink) : [this.text.slice(begin, end)];
    const tags = letter === '~' ? ['del'] : { 1: ['em'], 2: ['strong'], 3: ['em', 'strong'] }[length];
    for (const tag of tags) node = [make(tag, {}, ...node)];
    return this.put(node[0], end + length);
  }

  canOpen(letter, begin) {
    const before = this.text[this.at - 1] ?? ' ';
    return /\S/.test(this.text[begin] ?? ' ') && (letter !== '_' || !/[\p{L}\p{N}]/u.test(before));
  }

  /** A closing run of this length; code on the way is stepped over, since marks in it are none. */
  findClosing(letter, length, from) {
    const key = `${letter}${length} closing`;
    if (this.unclosed.has(key)) return null;
    let at = from;
    while (at < this.text.length) {
      const here = this.text[at];
      if (here === '\\') { at += 2; continue; }
      if (here !== '`' && here !== letter) { at += 1; continue; }
      const run = this.runLength(at);
      if (here === '`') {
        const end = this.findRun('`', run, at + run);
        at = end === null ? at + run : end + run;
        continue;
      }
      const after = this.text[at + run] ?? ' ';
      const isClosing = /\S/.test(this.text[at - 1]) && (letter !== '_' || !/[\p{L}\p{N}]/u.test(after));
      if (run === length && isClosing) return at;
      at += run;
    }
    this.unclosed.add(key);
    return null;
  }

  /** `[text](target)`, and `![text](target)`: pictures are named and linked, never fetched. */
  takeLink(open) {
    let close = open + 1;
    while (close < this.text.length && this.text[close] !== ']' && this.text[close] !== '[') close += this.text[close] === '\\' ? 2 : 1;
    if (this.text[close] !== ']') return false;
    LINK_TARGET.lastIndex = close + 1;
    const target = LINK_TARGET.exec(this.text);
    const address = target && safeAddress(target[1]);
    if (!address) return false;
    const label = this.text.slice(open + 1, close);
    const shown = label ? (this.depth < MAX_NESTING ? inlineNodes(label, this.depth + 1, true) : [label]) : [address];
    return this.put(makeLink(address, shown), LINK_TARGET.lastIndex);
  }

  takeAngled() {
    const end = this.text.indexOf('>', this.at);
    const inner = end === -1 || end - this.at > 2000 ? '' : this.text.slice(this.at + 1, end);
    if (!/^(https?:\/\/|mailto:)[^\s<>]+$/i.test(inner)) return false;
    const address = safeAddress(inner);
    return address ? this.put(makeLink(address, [inner]), end + 1) : false;
  }

  takeBareLink() {
    if (/[\p{L}\p{N}_]/u.test(this.text[this.at - 1] ?? ' ')) return false;
    BARE_LINK.lastIndex = this.at;
    const found = BARE_LINK.exec(this.text);
    if (!found) return false;
    let shown = found[0];
    while (/[.,:;!?*_~\])]$/.test(shown) && !(shown.endsWith(')') && shown.includes('('))) shown = shown.slice(0, -1);
    const address = safeAddress(shown);
    return address ? this.put(makeLink(address, [shown]), this.at + shown.length) : false;
  }
}

/** The address when it is one of the web or of a mailbox; null for any other scheme, and for what is relative. */
function safeAddress(text) {
  try {
    const address = new URL(text);
    return ['http:', 'https:', 'mailto:'].includes(address.protocol) ? address.href : null;
  } catch {
    return null;
  }
}

function makeLink(href, children) {
  return make('a', { href, target: '_blank', rel: 'noopener noreferrer nofollow', title: href }, ...children);
}
