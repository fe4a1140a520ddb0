/** What a key does on the watch page. */
export type Command = 'play' | 'mute' | 'fullscreen' | 'live' | 'back' | 'ahead';

/** The keys and what they do, as the page lists them. */
export const KEYS: readonly {
  key: string;
  shown: string;
  command: Command;
  what: string;
  /** Only with a broadcast, or only with a file. */
  only?: 'live' | 'recorded';
}[] = [
  { key: ' ', shown: 'Space', command: 'play', what: 'play or pause' },
  { key: 'm', shown: 'M', command: 'mute', what: 'mute or unmute' },
  { key: 'f', shown: 'F', command: 'fullscreen', what: 'full screen on or off' },
  { key: 'l', shown: 'L', command: 'live', what: 'go to live', only: 'live' },
  { key: 'arrowleft', shown: '←', command: 'back', what: '5 seconds back', only: 'recorded' },
  { key: 'arrowright', shown: '→', command: 'ahead', what: '5 seconds ahead', only: 'recorded' },
];

/** Keys that the focused element has a use of its own for. */
export interface Used {
  usesSpace: boolean;
  usesLetters: boolean;
  usesArrows: boolean;
}

type Key = Pick<KeyboardEvent, 'key' | 'ctrlKey' | 'metaKey' | 'altKey' | 'repeat' | 'defaultPrevented'>;

/**
 * The command of a key press, or null. `onControl`: the focus is on something that uses the space bar or
 * letters itself (a button, a slider, a radio button, a text field).
 */
export function commandOf(event: Key, recorded: boolean, onControl: Used): Command | null {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return null;
  const found = KEYS.find(({ key }) => key === event.key.toLowerCase());
  if (!found || found.only === (recorded ? 'live' : 'recorded')) return null;
  const arrow = found.key.startsWith('arrow');
  // A held arrow goes on; anything else acts once.
  if (event.repeat && !arrow) return null;
  const used = arrow ? onControl.usesArrows : found.key === ' ' ? onControl.usesSpace : onControl.usesLetters;
  return used ? null : found.command;
}

/** What the focused element does with keys of its own. */
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
