import { expect, it } from 'vitest';
import { NO_CREDENTIALS } from '../shared/credentials';
import { reasonOf } from './refusal';

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
