'use strict';
// The settings form: what it holds is kept in the browser, and becomes the fields of each request.

const SETTINGS = 'convoy.settings';
const KEY = 'convoy.key';
const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed'];
const TEXTS = ['system', 'stop', 'extra'];
// What the page itself decides about a request.
const OWN_FIELDS = ['messages', 'stream', 'stream_options', 'model'];

/** A setting that cannot be sent. field: the form's name of it. */
class SettingError extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

class Settings {
  constructor(form, keeper, onkey) {
    this.form = form;
    this.keeper = keeper;
    this.onkey = onkey;
    form.addEventListener('submit', (event) => event.preventDefault());
    form.addEventListener('input', (event) => this.keep(event.target));
    form.addEventListener('change', (event) => this.judge(event.target));
    byId('reset-settings').addEventListener('click', () => this.reset());
    window.addEventListener('storage', (event) => { if (event.key === SETTINGS || event.key === KEY) this.fill(); });
    this.fill();
  }

  fill() {
    const kept = this.keeper.read(SETTINGS, {});
    for (const name of [...NUMBERS, ...TEXTS]) {
      const field = this.form.elements[name];
      const value = String(kept[name] ?? '');
      if (field !== document.activeElement && field.value !== value) field.value = value;
    }
    this.form.elements.key.value = this.keeper.get(KEY) ?? '';
    this.onkey(this.form.elements.key.value);
  }

  keep(field) {
    if (field.name === 'key') {
      if (field.value) this.keeper.set(KEY, field.value.trim());
      else this.keeper.remove(KEY);
      this.onkey(field.value.trim());
      return;
    }
    const kept = {};
    for (const name of [...NUMBERS, ...TEXTS]) if (this.form.elements[name].value) kept[name] = this.form.elements[name].value;
    this.keeper.write(SETTINGS, kept);
    if (field.getAttribute('aria-invalid')) this.judge(field);
  }

  reset() {
    const { key } = this.form.elements;
    const kept = key.value;
    this.form.reset();
    key.value = kept;
    this.keeper.remove(SETTINGS);
    for (const field of this.form.elements) this.mark(field, '');
    toast('Back to the server\'s choices.');
  }

  /** Says at the field what is wrong with it, if anything. */
  judge(field) {
    try {
      this.read(field.name);
      this.mark(field, '');
    } catch (error) {
      this.mark(field, error.message);
    }
  }

  mark(field, message) {
    const place = field.parentElement.querySelector('.wrong');
    if (!message) {
      field.removeAttribute('aria-invalid');
      place?.remove();
      return;
    }
    field.setAttribute('aria-invalid', 'true');
    if (place) setText(place, message);
    else field.after(make('p', { className: 'wrong', role: 'alert' }, message));
  }

  get system() {
    return this.form.elements.system.value;
  }

  /** The fields of a request. Throws SettingError. */
  fields() {
    const fields = {};
    for (const name of [...NUMBERS, 'stop']) {
      const value = this.read(name);
      if (value !== null) fields[name] = value;
    }
    return { ...fields, ...this.read('extra') };
  }

  read(name) {
    const field = this.form.elements[name];
    if (NUMBERS.includes(name)) return readNumber(field);
    if (name === 'stop') {
      const strings = field.value.split('\n').filter((line) => line !== '');
      return strings.length ? strings : null;
    }
    return name === 'extra' ? readExtra(field.value) : null;
  }
}

/** The number in a field, null when it is empty. Only what is no number is refused here: bounds are the server's. */
function readNumber(field) {
  const label = field.labels[0].textContent;
  if (field.validity.badInput) throw new SettingError(field.name, `${label} must be a number.`);
  if (field.value.trim() === '') return null;
  const value = Number(field.value);
  if (!Number.isFinite(value)) throw new SettingError(field.name, `${label} must be a number.`);
  if (field.step === '1' && !Number.isSafeInteger(value)) throw new SettingError(field.name, `${label} must be a whole number.`);
  return value;
}

function readExtra(text) {
  if (!text.trim()) return {};
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new SettingError('extra', `This is not JSON: ${error.message}.`);
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new SettingError('extra', 'This must be a JSON object, in braces.');
  const own = OWN_FIELDS.find((name) => name in value);
  if (own) throw new SettingError('extra', `The page sets ${own} itself: leave it out.`);
  if ((value.n ?? 1) !== 1) throw new SettingError('extra', 'The page shows one answer at a time: leave n out.');
  return value;
}
