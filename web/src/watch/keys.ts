/** What a key does on the watch page. */
export type Command = 'play' | 'mute' | 'fullscreen' | 'live';

/** The keys and what they do, as the page lists them. */
export const KEYS: readonly { key: string; shown: string; command: Command; what: string }[] = [
  { key: ' ', shown: 'Space', command: 'play', what: 'play or pause' },
  { key: 'm', shown: 'M', command: 'mute', what: 'mute or unmute' },
  { key: 'f', shown: 'F', command: 'fullscreen', what: 'full screen on or off' },
  { key: 'l', shown: 'L', command: 'live', what: 'go to live' },
];

type Key = Pick<KeyboardEvent, 'key' | 'ctrlKey' | 'metaKey' | 'altKey' | 'repeat' | 'defaultPrevented'>;

/**
 * The command of a key press, or null. `onControl`: the focus is on something that uses the space bar or
 * letters itself (a button, a slider, a radio button, a text field).
 */
export function commandOf(
  event: Key,
  onControl: { usesSpace: boolean; usesLetters: boolean },
): Command | null {
  if (event.defaultPrevented || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return null;
  const found = KEYS.find(({ key }) => key === event.key.toLowerCase());
  if (!found) return null;
  return (found.key === ' ' ? onControl.usesSpace : onControl.usesLetters) ? null : found.command;
}

/** What the focused element does with keys of its own. */
export function keysUsedBy(element: Element | null): { usesSpace: boolean; usesLetters: boolean } {
  const tag = element?.tagName ?? '';
  const type = element?.getAttribute('type') ?? 'text';
  const typed =
    tag === 'TEXTAREA' ||
    tag === 'SELECT' ||
    (tag === 'INPUT' && !['radio', 'checkbox', 'range'].includes(type));
  return { usesSpace: typed || ['BUTTON', 'A', 'SUMMARY', 'INPUT'].includes(tag), usesLetters: typed };
}
