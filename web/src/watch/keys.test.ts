import { describe, expect, it } from 'vitest';
import { commandOf, KEYS } from './keys';

const plain = { ctrlKey: false, metaKey: false, altKey: false, repeat: false, defaultPrevented: false };
const nowhere = { usesSpace: false, usesLetters: false, usesArrows: false };

describe('commandOf', () => {
  it('knows the documented keys, in either case', () => {
    for (const { key, command, only } of KEYS) {
      const recorded = only === 'recorded';
      expect(commandOf({ ...plain, key }, recorded, nowhere)).toBe(command);
      expect(commandOf({ ...plain, key: key.toUpperCase() }, recorded, nowhere)).toBe(command);
    }
    expect(commandOf({ ...plain, key: 'x' }, false, nowhere)).toBeNull();
  });

  it('steps through a file, and takes a broadcast back to live', () => {
    expect(commandOf({ ...plain, key: 'ArrowLeft' }, true, nowhere)).toBe('back');
    expect(commandOf({ ...plain, key: 'ArrowRight', repeat: true }, true, nowhere)).toBe('ahead');
    expect(commandOf({ ...plain, key: 'ArrowRight' }, false, nowhere)).toBeNull();
    expect(commandOf({ ...plain, key: 'l' }, true, nowhere)).toBeNull();
    const slider = { usesSpace: true, usesLetters: false, usesArrows: true };
    expect(commandOf({ ...plain, key: 'ArrowRight' }, true, slider)).toBeNull();
  });

  it('leaves the browser its own shortcuts', () => {
    for (const modifier of ['ctrlKey', 'metaKey', 'altKey', 'repeat', 'defaultPrevented']) {
      expect(commandOf({ ...plain, key: 'f', [modifier]: true }, false, nowhere)).toBeNull();
    }
  });

  it('leaves a focused button its space bar, but not the letters', () => {
    const button = { usesSpace: true, usesLetters: false, usesArrows: false };
    expect(commandOf({ ...plain, key: ' ' }, false, button)).toBeNull();
    expect(commandOf({ ...plain, key: 'm' }, false, button)).toBe('mute');
    expect(commandOf({ ...plain, key: 'm' }, false, { ...button, usesLetters: true })).toBeNull();
  });
});
