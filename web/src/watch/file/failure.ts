import type { Failure } from '../condition';

/** Why a file cannot be played, or not to its end, in words for the viewer. */
export class FileFailure extends Error {
  /** Whether another attempt may help. */
  passing = false;
  /** Whether the server refused the request, and may say why. */
  refused = false;

  constructor(
    readonly kind: Failure['kind'],
    readonly what: string,
    readonly detail: string,
  ) {
    super(what);
  }
}
