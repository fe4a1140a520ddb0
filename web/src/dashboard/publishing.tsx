import { Fragment } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { publishing } from './model';

/** How to publish to this server. */
export function Publishing() {
  const how = publishing(location.hostname);
  return (
    <div class="publishing">
      <h3>This browser</h3>
      <p>
        <a href="/publish/live/camera">/publish/live/camera</a> sends a camera or a screen by WebRTC. Another
        name in the address publishes another stream.
      </p>
      <h3>ffmpeg</h3>
      <Command text={how.ffmpeg} of="ffmpeg" />
      <h3>OBS Studio</h3>
      <p>
        Settings → Stream → Service “Custom…”, server <code>{how.server}</code>, stream key{' '}
        <code>{how.key}</code>; a keyframe interval of 1 or 2 s keeps the delay short.
      </p>
      <h3>headwater itself</h3>
      <Command text={how.headwater} of="headwater" />
      <p class="faint">
        NAME is yours to choose: letters, digits, dot, hyphen and underscore. The RTMP port is 1935 unless the
        server was started with another one, which then goes behind the host:{' '}
        <code>rtmp://{location.hostname}:PORT/live/NAME</code>.
      </p>
    </div>
  );
}

function Command({ text, of }: { text: string; of: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 2_000);
    return () => clearTimeout(timer);
  }, [copied]);
  // Browsers offer the clipboard only to pages from https and localhost.
  const copy =
    navigator.clipboard &&
    (() =>
      navigator.clipboard.writeText(text).then(
        () => setCopied(true),
        () => undefined,
      ));
  return (
    <div class="command">
      <code>
        {/* A line breaks between two words of the command, not at the hyphen of an option. */}
        {text.split(' ').map((word, place) => (
          <Fragment key={place}>
            {place > 0 && ' '}
            <span>{word}</span>
          </Fragment>
        ))}
      </code>
      {copy && (
        <button type="button" onClick={copy}>
          {copied ? 'Copied' : 'Copy'}
          <span class="sr-only"> the {of} command</span>
        </button>
      )}
    </div>
  );
}
