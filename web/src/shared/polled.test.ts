import { expect, it } from 'vitest';
import { BadAnswer, Refused } from './api';
import { sentence } from './polled';

it('tells a server that refuses from one that cannot be reached', () => {
  const refused = (status: number) => sentence(new Refused(status));
  for (const status of [401, 403, 429, 500, 503]) {
    expect(refused(status).title).toBe('The server refuses this.');
  }
  expect(refused(401).text).toContain('password');
  expect(refused(403).text).toContain('not allowed');
  expect(refused(429).text).toContain('too many requests');
  expect(refused(503).text).toContain('cannot answer at the moment');
  expect(refused(500).text).toBe('It answers with the status 500.');
  const away = 'The server cannot be reached.';
  expect(sentence(new TypeError('Failed to fetch'))).toEqual({ title: away, text: 'It does not answer.' });
  expect(sentence(new DOMException('late', 'TimeoutError'))).toEqual({
    title: away,
    text: 'It did not answer in time.',
  });
  expect(sentence(new BadAnswer('not an object')).text).toContain('not an object');
});
