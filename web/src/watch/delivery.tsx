import { DELIVERIES, watchUrl } from '../shared/streams';
import type { Session } from './session';

/** The choice of delivery. Native radio buttons: arrow keys, names and roles are the browser's own. */
export function Delivery({ session }: { session: Session }) {
  const { stream } = session.request;
  if (stream === null) return null;
  return (
    <fieldset class="delivery">
      <legend>Delivery</legend>
      <div class="segmented">
        {DELIVERIES.map(({ via, label, hint }) => (
          <label key={via} title={hint}>
            <input
              type="radio"
              name="via"
              value={via}
              checked={session.via === via}
              onChange={() => {
                session.choose(via);
                history.replaceState(null, '', watchUrl(stream, via));
              }}
            />
            <span>{label}</span>
          </label>
        ))}
      </div>
      <p class="hint">{DELIVERIES.find(({ via }) => via === session.via)?.hint ?? 'Choose one of these.'}</p>
    </fieldset>
  );
}
