/** Shown where a number is not known. */
export const UNKNOWN = '–';

type Maybe = number | null | undefined;

function known(value: Maybe): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}

/** Seconds with two digits below ten, one above: `0.84 s`, `12.3 s`. */
export function seconds(value: Maybe): string {
  if (!known(value)) return UNKNOWN;
  return `${value.toFixed(Math.abs(value) < 9.995 ? 2 : 1)} s`;
}

/** bit/s in the unit that keeps it short: `950 kbit/s`, `2.1 Mbit/s`, `1.3 Gbit/s`. */
export function bitrate(value: Maybe): string {
  if (!known(value) || value < 0) return UNKNOWN;
  if (value < 999_500) return `${Math.round(value / 1000)} kbit/s`;
  const [scaled, unit] = value < 999.5e6 ? [value / 1e6, 'M'] : [value / 1e9, 'G'];
  return `${scaled.toFixed(scaled < 9.95 ? 1 : 0)} ${unit}bit/s`;
}

/** `1280 × 720`, which does not break across lines. */
export function resolution(width: Maybe, height: Maybe): string {
  return known(width) && known(height) && width > 0 && height > 0
    ? `${width}\u00a0×\u00a0${height}`
    : UNKNOWN;
}

/** `30 fps`, `29.97 fps` */
export function frameRate(value: Maybe): string {
  if (!known(value) || value <= 0) return UNKNOWN;
  return `${Number(value.toFixed(2))} fps`;
}

/** `48 kHz`, `44.1 kHz` */
export function sampleRate(value: Maybe): string {
  return known(value) && value > 0 ? `${Number((value / 1000).toFixed(2))} kHz` : UNKNOWN;
}

/** `mono`, `stereo`, `6 channels` */
export function channels(value: Maybe): string {
  if (!known(value) || value <= 0) return UNKNOWN;
  return value === 1 ? 'mono' : value === 2 ? 'stereo' : `${value} channels`;
}

/** `1 stall, 0.42 s`, `none` */
export function stalls(count: number, total: number): string {
  return count === 0 ? 'none' : `${count} (${seconds(total)})`;
}

/** Dropped frames and their share: `3 of 1,200 (0.3 %)`. */
export function dropped(count: Maybe, decoded: Maybe): string {
  if (!known(count)) return UNKNOWN;
  if (count === 0 || !known(decoded) || decoded === 0) return whole(count);
  return `${whole(count)} (${((100 * count) / decoded).toFixed(1)} %)`;
}

/** A count with its thousands apart: `12,345`. */
export function whole(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** Bytes in the unit that keeps them short: `950 kB`, `2.1 MB`, `3.4 GB`. */
export function bytes(value: number): string {
  if (value < 999_500) return `${Math.round(value / 1000)} kB`;
  return value < 999.95e6 ? `${(value / 1e6).toFixed(1)} MB` : `${(value / 1e9).toFixed(1)} GB`;
}

/** A part of a whole: `0.012 %`, with the digits that say something. */
export function share(part: number, of: number): string {
  return of > 0 ? `${Number(((100 * part) / of).toPrecision(2))} %` : UNKNOWN;
}

/** A count and its noun: `1 viewer`, `2 viewers`. */
export function counted(count: number, noun: string): string {
  return `${whole(count)} ${noun}${count === 1 ? '' : 's'}`;
}

/** A duration in seconds as a clock shows it: `0:07`, `12:34`, `1:02:03`, `3 d 04:05:06`. */
export function duration(value: Maybe): string {
  if (!known(value)) return UNKNOWN;
  const total = Math.max(0, Math.floor(value));
  const pad = (part: number) => String(part).padStart(2, '0');
  const [s, m, h, d] = [
    total % 60,
    Math.floor(total / 60) % 60,
    Math.floor(total / 3600) % 24,
    Math.floor(total / 86400),
  ];
  if (d > 0) return `${d} d ${pad(h)}:${pad(m)}:${pad(s)}`;
  return h > 0 ? `${h}:${pad(m)}:${pad(s)}` : `${m}:${pad(s)}`;
}

/** The duration as ISO 8601 for the `datetime` attribute of `<time>`. */
export function isoDuration(value: Maybe): string {
  return `PT${known(value) ? Math.max(0, Math.floor(value)) : 0}S`;
}

const languages = new Intl.DisplayNames(['en'], { type: 'language' });

/** What an audio or subtitle track is called: its name, or its language in words, or its number. */
export function trackLabel(name: string, language: string, index: number): string {
  if (name !== '' && name !== language) return name;
  if (language === '' || language === 'und') return `Track ${index + 1}`;
  try {
    return languages.of(language) ?? language;
  } catch {
    return language;
  }
}

/** The deliveries as the API names them, in words. */
export function delivery(name: string): string {
  const words: Record<string, string> = {
    llhls: 'LL-HLS',
    hls: 'HLS',
    dash: 'DASH',
    mp4: 'MP4',
    flv: 'FLV',
    rtmp: 'RTMP',
    push: 'Push',
    webrtc: 'WebRTC',
    whip: 'WHIP',
    file: 'File',
  };
  return words[name] ?? name;
}
