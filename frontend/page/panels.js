'use strict';
// The panels at the sides, the colours, and what the keyboard does with them. On a narrow window a panel lies over
// the chat and takes the focus; on a wide one it stands beside it.

const PANELS = 'convoy.panels';
const THEME = 'convoy.theme';
const THEMES = ['system', 'light', 'dark'];

class Panels {
  constructor(keeper) {
    this.keeper = keeper;
    this.narrow = window.matchMedia('(max-width: 60rem)');
    this.panels = ['chats', 'engine', 'settings'].map((id) => ({ id, element: byId(id), button: byId(`show-${id}`) }));
    for (const panel of this.panels) {
      panel.button.addEventListener('click', () => this.toggle(panel.id));
      panel.element.querySelector('.close').addEventListener('click', () => this.close(panel.id));
    }
    byId('shade').addEventListener('click', () => this.closeAll());
    this.narrow.addEventListener('change', () => this.arrange());
    this.arrange();
  }

  /** What was open on a wide window is open again; a narrow one begins with the chat. */
  arrange() {
    const kept = this.keeper.read(PANELS, window.innerWidth >= 1200 ? ['chats', 'engine'] : []);
    for (const panel of this.panels) this.set(panel, !this.narrow.matches && Array.isArray(kept) && kept.includes(panel.id));
    this.cover();
  }

  find(id) {
    return this.panels.find((panel) => panel.id === id);
  }

  isOpen(id) {
    return !this.find(id).element.hidden;
  }

  set(panel, isOpen) {
    panel.element.hidden = !isOpen;
    panel.button.setAttribute('aria-expanded', String(isOpen));
  }

  toggle(id) {
    if (this.isOpen(id)) this.close(id);
    else this.open(id);
  }

  /** The engine and the settings share one side; over a narrow chat there is one panel at a time. */
  open(id) {
    const side = (name) => (name === 'chats' ? 'left' : 'right');
    for (const panel of this.panels) {
      if (panel.id !== id && (this.narrow.matches || side(panel.id) === side(id))) this.set(panel, false);
    }
    this.set(this.find(id), true);
    this.remember();
    if (this.narrow.matches) this.find(id).element.querySelector('.close').focus();
  }

  close(id) {
    const panel = this.find(id);
    const hadFocus = panel.element.contains(document.activeElement);
    this.set(panel, false);
    this.remember();
    if (hadFocus || this.narrow.matches) panel.button.focus();
  }

  /** Whether there was one to close; only panels over the chat are closed this way. */
  closeAll() {
    const open = this.narrow.matches ? this.panels.filter((panel) => !panel.element.hidden) : [];
    for (const panel of open) this.close(panel.id);
    return open.length > 0;
  }

  remember() {
    this.cover();
    if (!this.narrow.matches) this.keeper.write(PANELS, this.panels.filter((panel) => !panel.element.hidden).map((panel) => panel.id));
  }

  /** Under a panel that lies over it, the chat can neither be touched nor reached by Tab. */
  cover() {
    const isCovered = this.narrow.matches && this.panels.some((panel) => !panel.element.hidden);
    byId('shade').hidden = !isCovered;
    document.querySelector('main').inert = isCovered;
    document.querySelector('.bar').inert = isCovered;
  }
}

/** Light, dark, or as the system has it; kept, and the same in all tabs. */
class Theme {
  constructor(keeper) {
    this.keeper = keeper;
    this.button = byId('theme');
    this.button.addEventListener('click', () => {
      const next = THEMES[(THEMES.indexOf(this.current()) + 1) % THEMES.length];
      this.keeper.set(THEME, next);
      this.apply();
      announce(this.button.title);
    });
    window.addEventListener('storage', (event) => { if (event.key === THEME) this.apply(); });
    this.apply();
  }

  current() {
    const kept = this.keeper.get(THEME);
    return THEMES.includes(kept) ? kept : 'system';
  }

  apply() {
    const theme = this.current();
    document.documentElement.dataset.theme = theme;
    const label = theme === 'system' ? 'Colours: as the system' : `Colours: ${theme}`;
    this.button.title = label;
    this.button.setAttribute('aria-label', label);
  }
}
