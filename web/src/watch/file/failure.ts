import type { Failure } from '../condition';

/** Why a file cannot be played (on), in words for the viewer. */
export class FileFailure extends Error {
  /** Whether trying again may help. */
  passing = false;

  constructor(
    readonly kind: Failure['kind'],
    readonly what: string,
    readonly detail: string,
  ) {
    super(what);
  }
}
