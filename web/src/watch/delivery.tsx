import { deliveriesOf, isRecorded, watchUrl } from '../shared/streams';
import type { Session } from './session';

/**
 * The choice of delivery. It has native radio buttons, so arrow keys, names and roles are the
 * browser's own.
 */
export function Delivery({ session }: { session: Session }) {
  const { stream } = session.request;
  if (stream === null) return null;
  const deliveries = deliveriesOf(stream);
  const chosen = deliveries.find(({ via }) => via === session.via);
  const known = isRecorded(stream) ? chosen?.recordedHint : chosen?.hint;
  const hint = chosen ? known : 'Choose one of these.';
  return (
    <fieldset class="delivery">
      <legend>Delivery</legend>
      <div class="segmented">
        {deliveries.map(({ via, label }) => (
          <label key={via}>
            <input
              type="radio"
              name="via"
              value={via}
              checked={session.via === via}
              onChange={() => {
                session.choose(via);
                const { prefix, credentials } = session.request;
                history.replaceState(null, '', watchUrl(stream, via, prefix, credentials.query));
              }}
            />
            <span>{label}</span>
          </label>
        ))}
      </div>
      {session.reasonForOther && (
        <p class="exchanged" role="status">
          {session.reasonForOther} This page went over to {chosen?.label}.
        </p>
      )}
      {hint && <p class="hint">{hint}</p>}
    </fieldset>
  );
}
