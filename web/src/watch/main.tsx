import { render } from 'preact';
import { parseWatchUrl, type Via } from '../shared/streams';
import { playerOf, type StartEngine } from './engines/engine';
import { hasMediaSource, Session, type Stats } from './session';
import { Watch } from './view';

declare global {
  interface Window {
    /** The page's present figures, for tests and for scripts. */
    headwater: { stats(): Stats };
  }
}

const opened = performance.now();

async function loadEngine(via: Via): Promise<StartEngine> {
  const { player } = playerOf(via, hasMediaSource());
  if (player === 'file') return (await import('./engines/file')).startFile;
  if (player === 'webrtc') return (await import('./engines/webrtc')).startWebrtc;
  if (player === 'native') return (await import('./engines/native')).startNative;
  if (player === 'push') return (await import('./engines/push')).loadPush();
  if (player === 'dash') return (await import('./engines/dash')).startDash;
  return (await import('./engines/hls')).startHls;
}

const session = new Session(parseWatchUrl(new URL(location.href)), loadEngine, opened);
window.headwater = { stats: () => session.stats() };
session.begin();

const app = document.getElementById('app');
if (app) render(<Watch session={session} />, app);
