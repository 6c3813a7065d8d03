'use strict';
// Markdown to elements, block by block, while the text still grows. Each block keeps the source it was made
// from: only blocks whose source changed are made again. Blocks are here, what stands in a line is in inline.js.

const MAX_NESTING = 8;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(\S.*)$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])(?:[ \t]+(.*))?$/;
const QUOTE = /^ {0,3}>[ ]?(.*)$/;
const DELIMITERS = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** The blocks of a text: kind, lines, and per kind what its first line said. */
function splitBlocks(text) {
  const lines = text.split('\n');
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) { at += 1; continue; }
    const block = takeBlock(lines, at);
    block.source = `${block.kind}\n${lines.slice(at, block.end).join('\n')}`;
    blocks.push(block);
    at = block.end;
  }
  return blocks;
}

function takeBlock(lines, at) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return takeFence(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return { kind: 'heading', level: heading[1].length, text: withoutClosingMarks(heading[2]), end: at + 1 };
  if (RULE.test(line)) return { kind: 'rule', end: at + 1 };
  if (QUOTE.test(line)) return takeQuote(lines, at);
  if (ITEM.test(line)) return takeList(lines, at);
  if (isTableAt(lines, at)) return takeTable(lines, at);
  let end = at + 1;
  while (end < lines.length && !beginsBlock(lines, end)) end += 1;
  return { kind: 'paragraph', text: lines.slice(at, end).join('\n'), end };
}

function beginsBlock(lines, at) {
  const line = lines[at];
  if (!line.trim() || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  // A number in the middle of a paragraph is a list's beginning only when it is the first one, as in CommonMark.
  const item = ITEM.exec(line);
  return Boolean(item && item[3] && (!/\d/.test(item[2]) || Number.parseInt(item[2], 10) === 1)) || isTableAt(lines, at);
}

function withoutClosingMarks(text) {
  let end = text.trimEnd().length;
  while (end > 0 && text[end - 1] === '#') end -= 1;
  return end === 0 || text[end - 1] === ' ' ? text.slice(0, end).trim() : text.trim();
}

function takeFence(lines, at, fence) {
  const indent = /^ */.exec(lines[at])[0].length;
  const closing = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}[ \\t]*$`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  const code = lines.slice(at + 1, end).map((line) => line.slice(Math.min(indent, /^ */.exec(line)[0].length)));
  const language = fence[2].trim().split(/\s/)[0].slice(0, 40);
  return { kind: 'code', language, text: code.join('\n'), end: Math.min(lines.length, end + 1) };
}

function takeQuote(lines, at) {
  const inner = [];
  let end = at;
  for (; end < lines.length && QUOTE.test(lines[end]); end += 1) inner.push(QUOTE.exec(lines[end])[1]);
  return { kind: 'quote', text: inner.join('\n'), end };
}

function isTableAt(lines, at) {
  const next = lines[at + 1];
  if (next === undefined || !lines[at].includes('|') || !next.includes('-') || !DELIMITERS.test(next)) return false;
  return cellsOf(lines[at]).length === cellsOf(next).length;
}

function takeTable(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].trim() && lines[end].includes('|')) end += 1;
  const sides = cellsOf(lines[at + 1]).map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : 'left'));
  return { kind: 'table', head: cellsOf(lines[at]), sides, rows: lines.slice(at + 2, end).map(cellsOf), end };
}

/** The cells of a table's line; `\|` and bars in code stay in their cell. */
function cellsOf(line) {
  const cells = [];
  let cell = '';
  let isCode = false;
  const text = line.trim();
  for (let at = text.startsWith('|') ? 1 : 0; at < text.length; at += 1) {
    if (text[at] === '`') isCode = !isCode;
    if (text[at] === '\\' && text[at + 1] === '|') { cell += '|'; at += 1; }
    else if (text[at] === '|' && !isCode) { cells.push(cell.trim()); cell = ''; }
    else cell += text[at];
  }
  if (cell.trim()) cells.push(cell.trim());
  return cells;
}

/** A list goes on while lines are items of its kind, or are indented under one. */
function takeList(lines, at) {
  const first = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(first[2]);
  const base = first[1].length;
  const items = [];
  let end = at;
  while (end < lines.length) {
    const line = lines[end];
    const item = ITEM.exec(line);
    const indent = /^[ \t]*/.exec(line)[0].length;
    if (item && indent <= base + 1 && !RULE.test(line)) {
      if (/\d/.test(item[2]) !== isOrdered) break;
      const text = item[3] ?? '';
      items.push({ lines: [text], indent: line.length - text.length });
    } else if (!line.trim()) {
      if (!goesOnAfterBlank(lines, end, base, isOrdered)) break;
      items.at(-1).lines.push('');
    } else if (indent > base) {
      items.at(-1).lines.push(line.slice(Math.min(indent, items.at(-1).indent)));
    } else if (lines[end - 1].trim() && !beginsBlock(lines, end)) {
      items.at(-1).lines.push(line);
    } else break;
    end += 1;
  }
  const start = isOrdered ? Number.parseInt(first[2], 10) : null;
  return { kind: 'list', start, items: items.map((item) => item.lines.join('\n')), end };
}

function goesOnAfterBlank(lines, at, base, isOrdered) {
  let next = at;
  while (next < lines.length && !lines[next].trim()) next += 1;
  if (next === lines.length) return false;
  const item = ITEM.exec(lines[next]);
  const indent = /^[ \t]*/.exec(lines[next])[0].length;
  return indent > base || Boolean(item && !RULE.test(lines[next]) && /\d/.test(item[2]) === isOrdered && indent === base);
}

/** Brings a container up to a text. Cheap to call for each piece of a growing text. */
function renderMarkdown(container, text, nesting = 0) {
  const blocks = splitBlocks(text);
  const shown = container.shownBlocks ?? [];
  blocks.forEach((block, index) => {
    const was = shown[index];
    if (was?.source === block.source) return;
    if (was && was.kind === 'code' && block.kind === 'code' && was.language === block.language) {
      setText(container.children[index].querySelector('code'), block.text);
      return;
    }
    const element = renderBlock(block, nesting);
    if (was) container.children[index].replaceWith(element);
    else container.append(element);
  });
  while (container.children.length > blocks.length) container.lastElementChild.remove();
  container.shownBlocks = blocks;
}

function renderBlock(block, nesting) {
  switch (block.kind) {
    case 'code': return renderCode(block);
    case 'heading': return make('p', { className: `heading level${block.level}`, role: 'heading', 'aria-level': Math.min(6, block.level + 1) }, ...inlineNodes(block.text));
    case 'rule': return make('hr');
    case 'quote': return nested(make('blockquote'), block.text, nesting);
    case 'list': return renderList(block, nesting);
    case 'table': return renderTable(block);
    default: return make('p', {}, ...inlineNodes(block.text));
  }
}

/** Blocks within a block; past the bound they are plain text, so that no text can nest the page to death. */
function nested(element, text, nesting) {
  if (nesting >= MAX_NESTING) element.append(text);
  else renderMarkdown(element, text, nesting + 1);
  return element;
}

function renderList(block, nesting) {
  const list = make(block.start === null ? 'ul' : 'ol');
  if (block.start !== null && block.start !== 1) list.start = block.start;
  const isLoose = block.items.some((item) => /\n[ \t]*\n/.test(item));
  for (const item of block.items) list.append(nested(make('li', { className: isLoose ? 'loose' : '' }), item, nesting));
  return list;
}

function renderTable(block) {
  const cell = (tag, text, index) => make(tag, { className: block.sides[index] ?? 'left' }, ...inlineNodes(text));
  const head = make('thead', {}, make('tr', {}, ...block.head.map((text, index) => cell('th', text, index))));
  const rows = block.rows.map((row) => make('tr', {}, ...block.head.map((_, index) => cell('td', row[index] ?? '', index))));
  return make('div', { className: 'table', tabIndex: 0, role: 'group', 'aria-label': 'Table' }, make('table', {}, head, make('tbody', {}, ...rows)));
}

function renderCode(block) {
  const code = make('code', {}, block.text);
  const head = make('div', { className: 'code-head' }, make('span', {}, block.language || 'text'), makeCopyButton(() => code.textContent));
  return make('div', { className: 'code' }, head, make('pre', { tabIndex: 0 }, code));
}
