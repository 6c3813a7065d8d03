'use strict';
// Making elements. Text only ever goes in as text: nothing on this page turns a string into markup.

/** An element with these properties; `aria-*`, `data-*` and `role` become attributes. Strings become text nodes. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (/^(aria-|data-)|^role$/.test(name)) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A small button with a word on it. */
function makeButton(text, onclick, properties = {}) {
  return make('button', { type: 'button', className: 'quiet', onclick, ...properties }, text);
}

function byId(id) {
  return document.getElementById(id);
}

const SVG = 'http://www.w3.org/2000/svg';

/** An SVG element; all its properties are attributes. */
function makeSvg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Sets text only where it differs, so that a selection and a screen reader are left in peace. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Said to a screen reader, in its own time. */
function announce(text) {
  byId('announcer').textContent = text;
}

let toastTimer = 0;

/** A passing line at the foot of the page, with at most one thing to do about it. */
function toast(text, action = null, onaction = null) {
  clearTimeout(toastTimer);
  const place = byId('toast');
  const done = () => place.replaceChildren();
  place.replaceChildren(make('span', {}, text));
  if (action) place.append(makeButton(action, () => { done(); onaction(); }));
  toastTimer = setTimeout(done, action ? 8000 : 4000);
}

/** Copies text; pages served over plain HTTP to another machine have no clipboard interface, so there is a second way. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const focused = document.activeElement;
    const field = make('textarea', { value: text, className: 'hidden', 'aria-hidden': 'true' });
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand('copy');
    field.remove();
    focused?.focus();
    return isCopied;
  }
}

/** A button that copies what `text()` gives, and says so on itself for a moment. */
function makeCopyButton(text, label = 'Copy') {
  const button = makeButton(label, async () => {
    const isCopied = await copyText(text());
    button.textContent = isCopied ? 'Copied' : 'Not copied';
    announce(button.textContent);
    setTimeout(() => { button.textContent = label; }, 1600);
  });
  return button;
}
