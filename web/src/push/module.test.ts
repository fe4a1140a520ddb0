import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build, type Rolldown } from 'vite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const web = join(import.meta.dirname, '../..');

describe('the module as it is published', () => {
  let parts: Rolldown.RolldownOutput['output'];
  let types: string;
  const folder = mkdtempSync(join(tmpdir(), 'headwater-player-'));

  beforeAll(async () => {
    const built = await build({
      root: web,
      configFile: join(web, 'vite.player.config.ts'),
      logLevel: 'error',
      build: { write: false },
    });
    parts = (built as Rolldown.RolldownOutput).output;
    execFileSync(join(web, 'node_modules/.bin/tsc'), ['-p', 'tsconfig.player.json', '--outDir', folder], {
      cwd: web,
    });
    types = readFileSync(join(folder, 'push.d.ts'), 'utf8');
  }, 60_000);

  afterAll(() => rmSync(folder, { recursive: true }));

  it('is one file that imports nothing', () => {
    expect(parts).toHaveLength(1);
    expect(parts[0]).toMatchObject({
      fileName: 'push.js',
      exports: ['PushPlayer'],
      imports: [],
      dynamicImports: [],
    });
  });

  it('is under 10,000 bytes, compressed', () => {
    const code = parts[0]?.type === 'chunk' ? parts[0].code : '';
    expect(code).not.toBe('');
    expect(gzipSync(code, { level: 9 }).length).toBeLessThan(10_000);
  });

  it('has declarations that stand by themselves', () => {
    expect(types).toContain('export declare class PushPlayer');
    for (const name of ['PushOptions', 'PushEvents', 'PushStats', 'PushRendition']) {
      expect(types).toContain(`export interface ${name} `);
    }
    expect(types).not.toMatch(/\bimport\b|\bfrom\s+['"]/);
  });
});
