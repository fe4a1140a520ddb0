import { describe, expect, it } from 'vitest';
import { NO_CREDENTIALS } from '../../shared/credentials';
import { BLOCK, Ranges } from './ranges';

const signal = new AbortController().signal;

/** A file of `size` bytes, each byte its position modulo 251, and the requests for it. */
function served(size: number, answer?: (start: number, end: number) => Response | undefined) {
  const file = new Uint8Array(size).map((_, i) => i % 251);
  const requests: [number, number][] = [];
  const headers: Record<string, string>[] = [];
  const request = async (_url: string, init: RequestInit): Promise<Response> => {
    const sent = init.headers as Record<string, string>;
    headers.push(sent);
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(sent.range ?? '') ?? [];
    const start = Number(from);
    const end = Math.min(Number(to) + 1, size);
    requests.push([start, end]);
    const given = answer?.(start, end);
    if (given) return given;
    return new Response(file.slice(start, end), {
      status: 206,
      headers: { 'content-range': `bytes ${start}-${end - 1}/${size}`, etag: '"one"' },
    });
  };
  return { file, requests, headers, ranges: new Ranges('/vod/x.mp4', NO_CREDENTIALS, request, [0, 0]) };
}

describe('Ranges', () => {
  it('reads whole blocks once, and stops at the end of the file', async () => {
    const { file, requests, ranges } = served(BLOCK + 100);
    expect(await ranges.read(10, 20, signal)).toEqual(file.slice(10, 30));
    expect(await ranges.read(1_000, 20, signal)).toEqual(file.slice(1_000, 1_020));
    expect(requests).toEqual([[0, BLOCK]]);
    expect(ranges.size).toBe(BLOCK + 100);
    expect(await ranges.read(BLOCK + 90, 50, signal)).toEqual(file.slice(BLOCK + 90));
    expect(await ranges.read(BLOCK + 500, 16, signal)).toHaveLength(0);
    expect(requests).toHaveLength(2);
  });

  it('joins what touches into requests of at most 1 MiB', async () => {
    const { file, requests, ranges } = served(10 * BLOCK);
    const piece = { offset: BLOCK + 5, size: 5 * BLOCK };
    const got = await ranges.gather([piece], signal);
    // toEqual would take seconds for a million bytes.
    expect(got.length === 5 * BLOCK && got.every((byte, i) => byte === file[BLOCK + 5 + i])).toBe(true);
    expect(requests).toEqual([
      [BLOCK, 5 * BLOCK],
      [5 * BLOCK, 7 * BLOCK],
    ]);
  });

  it('gives pieces in the order asked for, whatever their order in the file', async () => {
    const { file, requests, ranges } = served(8 * BLOCK);
    const last = { offset: 7 * BLOCK, size: 3 };
    const first = { offset: 4, size: 2 };
    const got = await ranges.gather([last, first], signal);
    expect([...got]).toEqual([...file.slice(7 * BLOCK, 7 * BLOCK + 3), ...file.slice(4, 6)]);
    expect(requests.map(([start]) => start)).toEqual([0, 7 * BLOCK]);
  });

  it('keeps 2 MiB, not the file', async () => {
    const { requests, ranges } = served(20 * BLOCK);
    for (let block = 0; block < 20; block++) await ranges.read(block * BLOCK, 1, signal);
    await ranges.read(19 * BLOCK, 1, signal);
    expect(requests).toHaveLength(20);
    await ranges.read(0, 1, signal);
    expect(requests).toHaveLength(21);
  });

  it('says when the file ends before its index does', async () => {
    const { ranges } = served(100);
    await expect(ranges.gather([{ offset: 90, size: 20 }], signal)).rejects.toThrow('cut off');
    await expect(ranges.gather([{ offset: 5 * BLOCK, size: 1 }], signal)).rejects.toThrow('cut off');
  });

  it('asks for the version it began with, and says when there is another', async () => {
    const { headers, ranges } = served(3 * BLOCK, (start) =>
      start === 0 ? undefined : new Response('all of another file', { status: 200 }),
    );
    await ranges.read(0, 10, signal);
    await expect(ranges.read(BLOCK, 10, signal)).rejects.toThrow('replaced');
    expect(headers[0]).not.toHaveProperty('if-range');
    expect(headers[1]).toMatchObject({ 'if-range': '"one"' });
  });

  it('tries again after a failure that may pass, and not after one that does not', async () => {
    let failures = 0;
    const passing = served(10, () => {
      failures += 1;
      if (failures === 1) throw new TypeError('network');
      return failures === 2 ? new Response('', { status: 503 }) : undefined;
    });
    expect(await passing.ranges.read(0, 2, signal)).toHaveLength(2);
    expect(passing.requests).toHaveLength(3);
    const missing = served(10, () => new Response('', { status: 404 }));
    await expect(missing.ranges.read(0, 2, signal)).rejects.toMatchObject({
      what: expect.stringContaining('not on the server (404)'),
      refused: true,
    });
    expect(missing.requests).toHaveLength(1);
  });

  it('refuses answers that are not what was asked for', async () => {
    const wrong = (headers: Record<string, string>, body: BodyInit = 'abc') =>
      served(10, () => new Response(body, { status: 206, headers })).ranges.read(0, 2, signal);
    await expect(wrong({})).rejects.toThrow('another part');
    await expect(wrong({ 'content-range': 'bytes 5-7/10' })).rejects.toThrow('another part');
    await expect(wrong({ 'content-range': 'bytes 0-9/10' }, 'x'.repeat(11))).rejects.toThrow('more than');
    await expect(wrong({ 'content-range': 'bytes 0-9/10' }, 'short')).rejects.toThrow('did not answer');
    const whole = served(10, () => new Response('all', { status: 200 }));
    await expect(whole.ranges.read(0, 2, signal)).rejects.toThrow('range requests');
    const empty = served(0, () => new Response('', { status: 416 }));
    await expect(empty.ranges.read(0, 2, signal)).rejects.toThrow('empty');
  });

  it('ends with the viewer', async () => {
    const jump = new AbortController();
    const { ranges } = served(10, () => {
      jump.abort(new Error('jumped'));
      throw new TypeError('aborted');
    });
    await expect(ranges.read(0, 2, jump.signal)).rejects.toThrow('jumped');
  });
});
