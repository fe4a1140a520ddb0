import { keepConnected } from '../shared/ice';
import { endSession, sendOffer } from '../shared/whip';
import {
  type Counted,
  constraints,
  deviceTrouble,
  encodings,
  figures,
  mostBitrate,
  NOTHING_SENT,
  preferred,
  type Sent,
  type Settings,
  USUAL,
} from './model';

/** How long a connection may take, in milliseconds. */
const CONNECT = 10_000;
/** Time between two attempts to connect again, in milliseconds. */
const TRY_AGAIN = 2_000;
/**
 * How long a lost connection is tried anew, in milliseconds. The server keeps the stream for so long. It
 * holds the place of a publisher that has gone for 10 s.
 */
const TRY_FOR = 30_000;
/** Time between reads of the connection's figures, in milliseconds. */
const EVERY = 1_000;

/**
 * `preview`: nothing is sent. `connecting`: the viewer of this page has asked to publish. `again`: the
 * connection was lost, and is tried anew.
 */
export type State = 'preview' | 'connecting' | 'live' | 'again';

/** A camera, screen or microphone on its way to the server by WHIP (RFC 9725). */
export class Publication {
  settings: Settings = USUAL;
  state: State = 'preview';
  /** What went wrong last, in words. */
  trouble: string | null = null;
  sent: Sent = NOTHING_SENT;
  devices: readonly MediaDeviceInfo[] = [];
  readonly media = new MediaStream();
  private readonly listeners = new Set<() => void>();
  private connection: Connection | null = null;
  /** Until when a lost connection is tried anew, by `performance.now()`. */
  private tryUntil: number | null = null;
  /** What `media` were opened for. */
  private opened: Pick<Settings, 'video' | 'audio' | 'height'> | null = null;
  /** Counts changes of the settings. Only the newest decides which devices are open. */
  private choice = 0;

  /** `url` is the address that takes the offer. */
  constructor(private readonly url: string) {
    navigator.mediaDevices?.addEventListener('devicechange', () => void this.list());
    addEventListener('pagehide', () => this.stop());
  }

  /** Calls `listener` at each change. Returns a function that stops this. */
  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Opens the devices of these settings. While publishing, they take the place of those before. */
  async choose(settings: Settings): Promise<void> {
    const { opened } = this;
    this.settings = settings;
    this.trouble = null;
    this.choice += 1;
    const { choice } = this;
    this.tell();
    const same = (key: 'video' | 'audio' | 'height') =>
      JSON.stringify(opened?.[key]) === JSON.stringify(settings[key]);
    if (!same('video') || !same('audio') || !same('height')) {
      let tracks: MediaStreamTrack[];
      try {
        tracks = await this.open(settings);
      } catch (error) {
        if (choice !== this.choice) return;
        // The devices before stay open.
        this.settings = { ...settings, ...this.opened };
        this.fail(deviceTrouble(error));
        return;
      }
      if (choice !== this.choice) {
        for (const track of tracks) track.stop();
        return;
      }
      this.take(tracks);
      const { video, audio, height } = settings;
      this.opened = { video, audio, height };
      // A source of the same kind may have ended meanwhile.
      this.settings = settings;
      this.trouble = null;
      await this.list();
    }
    await this.connection?.carry(this.media, settings);
    this.tell();
  }

  /** Opens the usual devices, or those that there are. */
  async begin(): Promise<void> {
    if (!navigator.mediaDevices) {
      this.fail(
        'Browsers give cameras and microphones only to pages from https: addresses and from localhost.',
      );
      return;
    }
    await this.list();
    const has = (kind: MediaDeviceKind) => this.devices.some((device) => device.kind === kind);
    const settings = { ...USUAL };
    if (!has('videoinput')) settings.video = { kind: 'none' };
    if (!has('audioinput')) settings.audio = { kind: 'none' };
    await this.choose(settings);
  }

  /** Begins to publish. */
  start(): void {
    if (this.state !== 'preview') return;
    this.trouble = null;
    this.tryUntil = null;
    this.connect('connecting');
  }

  /** Ends publishing. The preview stays. */
  stop(): void {
    this.connection?.end();
    this.connection = null;
    this.sent = NOTHING_SENT;
    this.state = 'preview';
    this.tell();
  }

  private connect(state: 'connecting' | 'again'): void {
    this.state = state;
    const connection: Connection = new Connection(this.url, {
      connected: () => {
        this.state = 'live';
        this.trouble = null;
        this.tryUntil = null;
        this.tell();
      },
      sent: (sent) => {
        this.sent = sent;
        this.tell();
      },
      // A first attempt that fails is told. A connection that was there is tried anew. One that did not come about,
      // though the server took the offer, is tried once more: packets may have been lost.
      lost: (why, chance) => {
        connection.end();
        this.connection = null;
        this.sent = NOTHING_SENT;
        this.trouble = why;
        const now = performance.now();
        if (this.state === 'live') this.tryUntil = now + TRY_FOR;
        // Only once: when the second attempt fails, this time is over.
        if (chance === 'silence') this.tryUntil ??= now + 1;
        const again = chance !== 'none' && this.tryUntil !== null && now < this.tryUntil;
        this.state = again ? 'again' : 'preview';
        this.tell();
        if (!again) return;
        setTimeout(() => {
          if (this.state === 'again' && this.connection === null) this.connect('again');
        }, TRY_AGAIN);
      },
    });
    this.connection = connection;
    this.tell();
    void connection.begin(this.media, this.settings);
  }

  private async open(settings: Settings): Promise<MediaStreamTrack[]> {
    const { mediaDevices } = navigator;
    const tracks: MediaStreamTrack[] = [];
    if (settings.video.kind === 'screen') {
      const screen = await mediaDevices.getDisplayMedia({ video: { frameRate: { ideal: 30 } } });
      tracks.push(...screen.getVideoTracks());
    }
    const wanted = constraints(settings);
    if (wanted === null) return tracks;
    try {
      tracks.push(...(await mediaDevices.getUserMedia(wanted)).getTracks());
    } catch (error) {
      for (const track of tracks) track.stop();
      throw error;
    }
    return tracks;
  }

  private take(tracks: readonly MediaStreamTrack[]): void {
    for (const track of this.media.getTracks()) {
      this.media.removeTrack(track);
      track.stop();
    }
    for (const track of tracks) {
      this.media.addTrack(track);
      // The screen's viewer ends it in the browser's own window, or a device is unplugged.
      track.addEventListener('ended', () => {
        this.media.removeTrack(track);
        this.leave(track.kind === 'video' ? 'video' : 'audio');
        this.fail(track.kind === 'video' ? 'The video source has ended.' : 'The audio source has ended.');
      });
    }
  }

  /**
   * Notes that a source has ended. Other settings must not open it anew, because the browser would then ask for
   * a screen. The same source must be opened when it is chosen again.
   */
  private leave(kind: 'video' | 'audio'): void {
    const { opened, settings } = this;
    const none = { [kind]: { kind: 'none' } };
    if (opened !== null) this.opened = { ...opened, ...none };
    // Another source may have been chosen, and is about to be opened.
    if (JSON.stringify(opened?.[kind]) === JSON.stringify(settings[kind])) {
      this.settings = { ...settings, ...none };
    }
  }

  private async list(): Promise<void> {
    const devices = await navigator.mediaDevices.enumerateDevices().catch(() => []);
    this.devices = devices;
    this.tell();
  }

  private fail(why: string): void {
    this.trouble = why;
    this.tell();
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }
}

/** Whether another attempt may succeed. `silence`: the server took the offer, and no connection followed. */
type Chance = 'none' | 'some' | 'silence';

interface Events {
  connected(): void;
  sent(sent: Sent): void;
  lost(why: string, chance: Chance): void;
}

/** One session of WHIP. */
class Connection {
  /** The newest change of what is sent. The next one waits for it. */
  private changing: Promise<void> = Promise.resolve();
  private readonly peer = new RTCPeerConnection();
  private readonly asked = new AbortController();
  private readonly late: ReturnType<typeof setTimeout>;
  private reading: ReturnType<typeof setInterval> | undefined;
  private session: string | null = null;
  /** Stops restarts of ICE, which begin once there is a connection. */
  private leaveIt: (() => void) | null = null;
  private counted: Counted | null = null;
  private over = false;

  constructor(
    private readonly url: string,
    private readonly events: Events,
  ) {
    const fail = (why: string) => this.lose(why, this.session === null ? 'some' : 'silence');
    this.late = setTimeout(() => fail(`No connection within ${CONNECT / 1000} s.`), CONNECT);
    this.peer.addEventListener('connectionstatechange', () => {
      const { connectionState } = this.peer;
      if (connectionState === 'connected' && this.reading === undefined && !this.over) {
        clearTimeout(this.late);
        this.reading = setInterval(() => void this.read(), EVERY);
        if (this.session !== null) {
          this.leaveIt = keepConnected(this.peer, this.session, () =>
            this.lose('The connection was lost.', 'some'),
          );
        }
        this.events.connected();
      }
      if (connectionState === 'failed' && this.leaveIt === null) fail('No connection came about.');
    });
  }

  /** Agrees with the server, and sends. */
  async begin(media: MediaStream, settings: Settings): Promise<void> {
    try {
      const codecs = preferred(RTCRtpSender.getCapabilities('video')?.codecs ?? []);
      if (codecs.length === 0) {
        this.lose('This browser does not encode H.264, and the server takes no other video.', 'none');
        return;
      }
      // Both kinds are agreed on, so that a source can be added while publishing.
      const sendEncodings = encodings(settings);
      const video = this.peer.addTransceiver('video', {
        direction: 'sendonly',
        streams: [media],
        ...(sendEncodings.length > 0 && { sendEncodings }),
      });
      video.setCodecPreferences(codecs);
      this.peer.addTransceiver('audio', { direction: 'sendonly', streams: [media] });
      await this.carry(media, settings);
      await this.peer.setLocalDescription();
      const answer = await sendOffer(this.url, this.peer, this.asked.signal);
      const text = await answer.text();
      if (answer.status !== 201) {
        // The server's sentence says why. Somebody else's publication may end, or that of this page before.
        const mayPass = [409, 429].includes(answer.status) || answer.status >= 500;
        this.lose(`The server says: ${text.trim() || answer.status}.`, mayPass ? 'some' : 'none');
        return;
      }
      this.session = answer.headers.get('location');
      if (this.over) return endSession(this.peer, this.session);
      await this.peer.setRemoteDescription({ type: 'answer', sdp: text });
      await this.carry(media, settings);
    } catch (error) {
      this.lose(`The server cannot be reached: ${String(error)}.`, 'some');
    }
  }

  /** Sends these media from now on, the video at the bit rate of these settings at most. */
  carry(media: MediaStream, settings: Settings): Promise<void> {
    // A sender refuses parameters that were read before another change of it (WebRTC 1.0, setParameters).
    const change = () => this.change(media, settings);
    this.changing = this.changing.then(change, change);
    return this.changing;
  }

  private async change(media: MediaStream, { bitrate }: Settings): Promise<void> {
    for (const { sender, receiver } of this.peer.getTransceivers()) {
      if (this.over) return;
      const track = media.getTracks().find(({ kind }) => kind === receiver.track.kind) ?? null;
      await sender.replaceTrack(track);
      if (receiver.track.kind !== 'video') continue;
      const parameters = sender.getParameters();
      for (const encoding of parameters.encodings) encoding.maxBitrate = mostBitrate(bitrate, encoding.rid);
      if (parameters.encodings.length > 0) await sender.setParameters(parameters);
    }
  }

  /** Ends the session. No event comes after this. */
  end(): void {
    if (this.over) return;
    this.over = true;
    this.leaveIt?.();
    clearTimeout(this.late);
    clearInterval(this.reading);
    this.asked.abort();
    endSession(this.peer, this.session);
  }

  private lose(why: string, chance: Chance): void {
    if (!this.over) this.events.lost(why, chance);
  }

  private async read(): Promise<void> {
    const reports = [...(await this.peer.getStats()).values()];
    if (this.over) return;
    const [sent, counted] = figures(reports, performance.now(), this.counted);
    this.counted = counted;
    this.events.sent(sent);
  }
}
