import { describe, expect, it } from 'vitest';
import { commandOf, KEYS } from './keys';

const plain = { ctrlKey: false, metaKey: false, altKey: false, repeat: false, defaultPrevented: false };
const nowhere = { usesSpace: false, usesLetters: false };

describe('commandOf', () => {
  it('knows the documented keys, in either case', () => {
    for (const { key, command } of KEYS) {
      expect(commandOf({ ...plain, key }, nowhere)).toBe(command);
      expect(commandOf({ ...plain, key: key.toUpperCase() }, nowhere)).toBe(command);
    }
    expect(commandOf({ ...plain, key: 'x' }, nowhere)).toBeNull();
  });

  it('leaves the browser its own shortcuts', () => {
    for (const modifier of ['ctrlKey', 'metaKey', 'altKey', 'repeat', 'defaultPrevented']) {
      expect(commandOf({ ...plain, key: 'f', [modifier]: true }, nowhere)).toBeNull();
    }
  });

  it('leaves a focused button its space bar, but not the letters', () => {
    const button = { usesSpace: true, usesLetters: false };
    expect(commandOf({ ...plain, key: ' ' }, button)).toBeNull();
    expect(commandOf({ ...plain, key: 'm' }, button)).toBe('mute');
    expect(commandOf({ ...plain, key: 'm' }, { usesSpace: true, usesLetters: true })).toBeNull();
  });
});
