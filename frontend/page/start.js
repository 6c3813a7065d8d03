'use strict';
// Puts the page together when it has loaded, and says in words how the server is.

const BACK_MS = 4000;

/** The line above the chat while the server or its engine is not there, and a word when it is back. */
class Banner {
  constructor(openKey) {
    this.place = byId('banner');
    this.openKey = openKey;
    this.timer = 0;
  }

  show(state, was) {
    clearTimeout(this.timer);
    if (!state.isReady) {
      const { text, isWaiting } = bannerText(state);
      this.place.className = isWaiting ? 'waiting' : 'down';
      this.place.replaceChildren(make('span', {}, text));
      if (state.phase === 'locked') this.place.append(makeButton('Set the key', this.openKey));
    } else if (was && !was.isReady) {
      this.place.className = 'back';
      this.place.replaceChildren(make('span', {}, was.phase === 'locked' ? 'The key was taken.' : 'The engine is back.'));
      this.timer = setTimeout(() => this.clear(), BACK_MS);
    } else this.clear();
  }

  clear() {
    this.place.className = '';
    this.place.replaceChildren();
  }
}

function bannerText({ phase, detail }) {
  const because = detail ? ` ${sentence(detail)}` : '';
  switch (phase) {
    case 'offline': return { text: `${NO_ANSWER} What you wrote is kept.`, isWaiting: false };
    case 'locked': return { text: 'This server asks for an API key.', isWaiting: false };
    case 'starting': case 'loading': return { text: `The model is being loaded.${because}`, isWaiting: true };
    case 'warming': return { text: `The engine is warming up.${because}`, isWaiting: true };
    case 'connecting': return { text: `The engine is there; connecting to it.${because}`, isWaiting: true };
    case 'draining': case 'stopping': return { text: `The engine is stopping: it finishes what it has begun.${because}`, isWaiting: false };
    case 'silent': return { text: `The engine is silent.${because}`, isWaiting: false };
    case 'failed': return { text: `The engine has failed.${because}`, isWaiting: false };
    case 'incompatible': return { text: `The engine and this server do not fit together.${because}`, isWaiting: false };
    default: return { text: `The engine is not running.${because}`, isWaiting: false };
  }
}

/** The names the model is served under; the one chosen last time is chosen again. */
async function fillModels(server, keeper) {
  const select = byId('model');
  let models;
  try {
    models = await server.models();
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    return;
  }
  const chosen = keeper.get(MODEL);
  select.replaceChildren(...models.map(({ id }) => make('option', { value: id }, id)));
  select.disabled = models.length === 0;
  if (models.some(({ id }) => id === chosen)) select.value = chosen;
  setText(byId('empty-title'), models.length ? `Ask ${select.value}` : 'Ask something');
  const context = models[0]?.max_model_len;
  setText(byId('empty-facts'), context ? `It reads and writes up to ${context.toLocaleString('en')} tokens in one chat. Nothing leaves this server.` : '');
}

function startPage() {
  const keeper = new Keeper();
  new Theme(keeper);
  const panels = new Panels(keeper);
  const server = new Server();
  let watch = null;
  const settings = new Settings(byId('settings-form'), keeper, (key) => { server.key = key; watch?.look(); });
  const chat = new Chat({ server, store: new ChatStore(keeper), settings, panels });
  const banner = new Banner(() => chat.openSetting('key'));
  watch = new EngineWatch(server, new EngineView(byId('gauges')), (state, was) => {
    setText(byId('state'), PHASES[state.phase] ?? state.phase);
    byId('show-engine').dataset.state = state.isReady ? 'ready' : state.phase;
    banner.show(state, was);
    if (state.isReady) fillModels(server, keeper);
  });

  const address = new URL('v1', location.href.split('#')[0]).href;
  setText(byId('address'), address);
  byId('copy-address').addEventListener('click', async () => toast((await copyText(address)) ? 'Copied.' : 'Not copied.'));
  byId('model').addEventListener('change', () => keeper.set(MODEL, byId('model').value));
  if (!keeper.isLasting) setText(byId('kept'), 'This browser keeps nothing: chats end with the tab.');
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || event.isComposing) return;
    if (panels.closeAll() || chat.stop()) event.preventDefault();
  });
  if (!panels.narrow.matches) chat.composer.focus();
}

startPage();
