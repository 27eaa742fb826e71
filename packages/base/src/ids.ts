/** Of session ids, run ids and idempotency keys. Each row of a run stores the run's id. */
export const ID_BYTES_MAX = 128;

/** The effect of an event row on the session's open run. */
export type RunMark =
  /** The id for every row of the run: text that PostgreSQL can hold. */
  | { readonly kind: "open"; readonly runId: string }
  /** How the run ended, as `outcomeOf` names it; absent: not known. */
  | { readonly kind: "close"; readonly outcome?: string }
  /** A graph asks a person: the run ends with a question, although it does not say so. */
  | { readonly kind: "ask" };

// Only ASCII matches, so characters are bytes, and U+0000 is refused like other characters.
const FORM = new RegExp(`^[A-Za-z0-9._:-]{1,${ID_BYTES_MAX}}$`);

/** For the documents. */
export const SESSION_ID_PATTERN = FORM.source;

/** A path segment `.` or `..` in the HTTP API would change the path. */
export function isSessionId(text: string): boolean {
  return FORM.test(text) && text !== "." && text !== "..";
}
