/** As an idempotency key: each row of the run has its id, and each event that a row is taken apart into. */
export const RUN_ID_BYTES_MAX = 128;

export const SESSION_ID_BYTES_MAX = 128;
// Only ASCII passes, so characters are bytes, and U+0000 is refused with everything else.
const FORM = new RegExp(`^[A-Za-z0-9._:-]{1,${SESSION_ID_BYTES_MAX}}$`);

/** For documents. */
export const SESSION_ID_PATTERN = FORM.source;

/** A path segment of the HTTP API that says `.` or `..` would be taken for another path. */
export function isSessionId(text: string): boolean {
  return FORM.test(text) && text !== "." && text !== "..";
}
