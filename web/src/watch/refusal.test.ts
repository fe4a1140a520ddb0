import { expect, it } from 'vitest';
import { credentialsOf, NO_CREDENTIALS } from '../shared/credentials';
import type { Failure } from './condition';
import { reasonOf, withReason } from './refusal';

const answering = (body: string, status: number, type = 'text/plain; charset=utf-8') =>
  (async () => new Response(body, { status, headers: { 'content-type': type } })) as typeof fetch;

it('takes the first line of a refusal', async () => {
  expect(await reasonOf('/x', NO_CREDENTIALS, answering('no moov box\nmore', 422))).toBe('no moov box');
  expect(await reasonOf('/x', NO_CREDENTIALS, answering('x'.repeat(1000), 422))).toHaveLength(300);
});

it('has no reason where none is given', async () => {
  expect(await reasonOf('/x', NO_CREDENTIALS, answering('', 404))).toBeNull();
  expect(await reasonOf('/x', NO_CREDENTIALS, answering('<html>', 404, 'text/html'))).toBeNull();
  expect(await reasonOf('/x', NO_CREDENTIALS, answering('#EXTM3U', 200))).toBeNull();
  const broken = (async () => {
    throw new TypeError('network');
  }) as typeof fetch;
  expect(await reasonOf('/x', NO_CREDENTIALS, broken)).toBeNull();
});

it('asks once more where no answer comes in time', async () => {
  const late = (async () => {
    throw new DOMException('late', 'TimeoutError');
  }) as typeof fetch;
  const refused = answering('cut off', 422);
  /** The answers to the first request and to the next ones. */
  const inTurn = (answers: (typeof fetch)[]) =>
    ((...request) => (answers.shift() ?? refused)(...request)) as typeof fetch;
  expect(await reasonOf('/x', NO_CREDENTIALS, inTurn([late]))).toBe('cut off');
  expect(await reasonOf('/x', NO_CREDENTIALS, inTurn([late, late]))).toBeNull();
});

it('tells what the server says, and what is wrong with the credentials', async () => {
  const failure: Failure = {
    kind: 'network',
    what: 'Refused.',
    detail: 'manifestLoadError',
    refusedBy: '/x',
  };
  const detail = async (search: string, answer: typeof fetch, of = failure) =>
    (await withReason(of, credentialsOf(search), answer)).detail;
  const needed = answering('credentials are needed', 401);
  expect(await detail('', needed)).toBe('The server says: credentials are needed');
  expect(await detail('', answering('', 404))).toBe('manifestLoadError');
  const colon = '?user=a:b&password=p';
  expect(await detail(colon, needed)).toMatch(
    /^The user name has a colon.*The server says: credentials are needed$/,
  );
  expect(await detail(colon, needed, { ...failure, refusedBy: `/push${colon}` })).toMatch(/^The server says/);
  const { refusedBy: _, ...other } = failure;
  expect(await detail(colon, needed, other)).toBe('manifestLoadError');
});
