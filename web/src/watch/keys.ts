/** The effects that a key can have on the watch page. */
export type Command = 'play' | 'mute' | 'fullscreen' | 'live' | 'back' | 'ahead';

/** The keys and their effects, as the page lists them. */
export const KEYS: readonly {
  key: string;
  shown: string;
  command: Command;
  what: string;
  /** For broadcasts only, or for files only. */
  only?: 'live' | 'recorded';
}[] = [
  { key: ' ', shown: 'Space', command: 'play', what: 'play or pause' },
  { key: 'm', shown: 'M', command: 'mute', what: 'mute or unmute' },
  { key: 'f', shown: 'F', command: 'fullscreen', what: 'full screen on or off' },
  { key: 'l', shown: 'L', command: 'live', what: 'go to live', only: 'live' },
  { key: 'arrowleft', shown: '←', command: 'back', what: '5 seconds back', only: 'recorded' },
  { key: 'arrowright', shown: '→', command: 'ahead', what: '5 seconds ahead', only: 'recorded' },
];

/** Keys that the focused element itself uses. */
export interface Used {
  usesSpace: boolean;
  usesLetters: boolean;
  usesArrows: boolean;
}

type Key = Pick<KeyboardEvent, 'key' | 'ctrlKey' | 'metaKey' | 'altKey' | 'repeat' | 'defaultPrevented'>;

/**
 * The command of a key press, or null. `onControl`: the keys that the focused element itself uses
 * (a button, a slider, a radio button, a text field).
 */
export function commandOf(event: Key, recorded: boolean, onControl: Used): Command | null {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return null;
  const found = KEYS.find(({ key }) => key === event.key.toLowerCase());
  if (!found || found.only === (recorded ? 'live' : 'recorded')) return null;
  const arrow = found.key.startsWith('arrow');
  // A held arrow key repeats; any other key acts once.
  if (event.repeat && !arrow) return null;
  const used = arrow ? onControl.usesArrows : found.key === ' ' ? onControl.usesSpace : onControl.usesLetters;
  return used ? null : found.command;
}

/** The keys that an element itself uses when it has the focus. */
export function keysUsedBy(element: Element | null): Used {
  const tag = element?.tagName ?? '';
  const type = element?.getAttribute('type') ?? 'text';
  const typed =
    tag === 'TEXTAREA' ||
    tag === 'SELECT' ||
    (tag === 'INPUT' && !['radio', 'checkbox', 'range'].includes(type));
  return {
    usesSpace: typed || ['BUTTON', 'A', 'SUMMARY', 'INPUT'].includes(tag),
    usesLetters: typed,
    usesArrows: typed || (tag === 'INPUT' && type !== 'checkbox'),
  };
}
