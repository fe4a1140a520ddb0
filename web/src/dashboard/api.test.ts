import { afterEach, expect, it, vi } from 'vitest';
import { endSession } from './api';

afterEach(() => vi.unstubAllGlobals());

/** The server answers with this status and problem. */
function answers(status: number, detail: string): void {
  const problem = JSON.stringify({ title: 'x', status, detail });
  vi.stubGlobal('fetch', async () => new Response(status === 204 ? null : problem, { status }));
}

it('takes a session that is over for ended, and nothing else', async () => {
  answers(204, '');
  await endSession(1);
  answers(404, 'no such session');
  await endSession(1);
  // The viewers' listener has no such route.
  answers(404, 'no such page');
  await expect(endSession(1)).rejects.toThrow('404');
  answers(403, 'only administrators end sessions');
  await expect(endSession(1)).rejects.toThrow('403');
});
