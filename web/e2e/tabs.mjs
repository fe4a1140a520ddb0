import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ASKS, JUMP, LITTLE, observe, STANDS } from './standings.mjs';
import { CHROMIUM, FLAGS, PATIENCE, untilEnough, within } from './support.mjs';

/**
 * Starts Chromium with several tabs, one of them in front, as people use it. Playwright makes every
 * page believe that it is in front, so this function speaks the DevTools protocol itself, over
 * pipes.
 */
export async function startTabs() {
  const profile = await mkdtemp(join(tmpdir(), 'headwater-tabs-'));
  const words = [...FLAGS, '--remote-debugging-pipe', `--user-data-dir=${profile}`, 'about:blank'];
  const child = spawn(CHROMIUM, words, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const [, , , orders, answers] = child.stdio;
  const waiting = new Map();
  let heard = '';
  answers.setEncoding('utf8').on('data', (text) => {
    const messages = (heard + text).split('\0');
    heard = messages.pop();
    for (const { id, result, error } of messages.map((message) => JSON.parse(message))) {
      const { resolve, reject } = waiting.get(id) ?? {};
      waiting.delete(id);
      if (error) reject?.(new Error(error.message));
      else resolve?.(result);
    }
  });
  let last = 0;
  const send = (method, params = {}, sessionId = undefined) => {
    last += 1;
    const id = last;
    orders.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    const answer = new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
    return within(PATIENCE, answer, `answer to ${method}`);
  };
  return {
    /** Opens a tab in front of the others, which notes its standings (standings.mjs). */
    async open(url) {
      const { targetId } = await send('Target.createTarget', { url: 'about:blank' });
      const { sessionId } = await send('Target.attachToTarget', { targetId, flatten: true });
      await send('Page.enable', {}, sessionId);
      const source = `(${observe})(${JSON.stringify([STANDS, JUMP, ASKS, LITTLE])})`;
      await send('Page.addScriptToEvaluateOnNewDocument', { source }, sessionId);
      await send('Page.navigate', { url }, sessionId);
      const evaluate = async (expression) => {
        const params = { expression, returnByValue: true, awaitPromise: true };
        const { result, exceptionDetails } = await send('Runtime.evaluate', params, sessionId);
        if (exceptionDetails)
          throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
        return result.value;
      };
      return {
        evaluate,
        toFront: () => send('Target.activateTarget', { targetId }),
        /** Waits until `expression` is true. */
        until: (expression) => untilEnough(() => evaluate(expression), Boolean, expression),
      };
    },
    async close() {
      child.kill();
      await ended;
      // A process of the browser that outlives it has these pipes too, and would hold up the end of the test.
      orders.destroy();
      answers.destroy();
      await rm(profile, { recursive: true, maxRetries: 5, retryDelay: 100 });
    },
  };
}
