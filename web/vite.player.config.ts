import { defineConfig } from 'vite';

/** The player of push by itself: one module, for other people's pages as for ours. */
export default defineConfig({
  publicDir: false,
  build: {
    outDir: 'dist/player',
    target: 'es2022',
    modulePreload: false,
    rolldownOptions: {
      input: 'src/push/push.ts',
      preserveEntrySignatures: 'strict',
      output: { entryFileNames: 'push.js' },
    },
  },
});
