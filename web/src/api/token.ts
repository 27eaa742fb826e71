/**
 * The reader's token: in the session storage of this tab, and in headers of calls; never in an
 * address, a log or another tab. Calls that are refused for lack of a token wait here together until
 * the reader gives one.
 */
const KEY = "session-ledger-token";

interface Question {
  /** The token of the refused call; undefined when it had none. */
  readonly refused: string | undefined;
  readonly answer: PromiseWithResolvers<string | undefined>;
}

let question: Question | undefined;
/** The reader's last answer that was no token. */
let declinedMs = Number.NEGATIVE_INFINITY;
const listeners = new Set<() => void>();

function changed(): void {
  for (const listener of listeners) listener();
}

export function currentToken(): string | undefined {
  return sessionStorage.getItem(KEY) ?? undefined;
}

export interface RefusedCall {
  /** Its token, if it had one. */
  readonly token: string | undefined;
  /** By `performance.now`. */
  readonly beganMs: number;
}

/**
 * Waits for a token other than the refused one; undefined when the reader gives none. At once when
 * the reader has answered since the call began: several calls of a view are refused one by one.
 */
export async function askForToken({
  token: refused,
  beganMs,
}: RefusedCall): Promise<string | undefined> {
  const known = currentToken();
  if (known !== undefined && known !== refused) return known;
  if (declinedMs > beganMs) return undefined;
  if (question === undefined) {
    question = { refused, answer: Promise.withResolvers() };
    changed();
  }
  return await question.answer.promise;
}

/** The reader's answer; undefined: no token. */
export function giveToken(token: string | undefined): void {
  if (token === undefined) declinedMs = performance.now();
  else sessionStorage.setItem(KEY, token);
  const asked = question;
  question = undefined;
  asked?.answer.resolve(token);
  changed();
}

/** The next call asks for another one. */
export function forgetToken(): void {
  sessionStorage.removeItem(KEY);
  changed();
}

/** `refused` of the open question, or undefined when no call waits for a token. */
export function openQuestion(): { readonly refused: string | undefined } | undefined {
  return question;
}

export function onTokenChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
