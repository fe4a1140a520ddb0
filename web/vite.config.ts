import { defineConfig, type Plugin } from 'vite';

/**
 * Tells the browser, in the page itself, to fetch the engine that most viewers need. Without it
 * hls.js would be asked for only after the page's own script has arrived and run: one round trip
 * later, on the way to the first frame.
 */
function preloadEngine(page: string, chunkName: string): Plugin {
  return {
    name: 'preload-engine',
    transformIndexHtml: {
      order: 'post',
      handler(_html, { filename, bundle }) {
        if (!bundle || !filename.endsWith(page)) return [];
        const chunk = Object.values(bundle).find((part) => part.type === 'chunk' && part.name === chunkName);
        if (chunk?.type !== 'chunk') throw new Error(`no chunk named ${chunkName} to preload`);
        return [
          {
            tag: 'link',
            attrs: { rel: 'modulepreload', crossorigin: true, href: `/${chunk.fileName}` },
            injectTo: 'head',
          },
        ];
      },
    },
  };
}

export default defineConfig({
  base: '/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: 'dist',
    assetsDir: 'assets',
    // An inlined asset would be a data: URL, which a strict content security policy refuses.
    assetsInlineLimit: 0,
    target: 'es2022',
    // hls.js and dash.js are one chunk each and cannot usefully be split further.
    chunkSizeWarningLimit: 900,
    rolldownOptions: { input: ['index.html', 'nodes.html', 'watch.html', 'publish.html'] },
  },
  plugins: [preloadEngine('watch.html', 'hls')],
  // `npm run dev` with a headwater on the default port serves its media and API.
  server: { proxy: { '^/(api|live|vod)/': process.env.HEADWATER_URL ?? 'http://127.0.0.1:8080' } },
  test: { include: ['src/**/*.test.ts'], environment: 'node' },
} as import('vitest/config').ViteUserConfig);
