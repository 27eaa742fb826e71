/**
 * The reader's token: in the session storage of this tab and in headers of calls, and nowhere else.
 * Calls that are refused for lack of a token wait here until the reader gives one.
 */
import type { Connection } from "@session-ledger/react/internal/api/connection";

const KEY = "session-ledger-token";

interface Question {
  /** The token of the refused call; undefined when it had none. */
  readonly refused: string | undefined;
  readonly answer: PromiseWithResolvers<string | undefined>;
}

let question: Question | undefined;
/** Calls that the page makes by itself do not ask a reader who has declined. */
let isDeclined = false;
const listeners = new Set<() => void>();

function changed(): void {
  for (const listener of listeners) listener();
}

export function currentToken(): string | undefined {
  return sessionStorage.getItem(KEY) ?? undefined;
}

/**
 * Waits for a token other than the refused one; undefined when the reader gives none. At once when
 * the reader has answered: several calls of a view are refused one by one, and again and again.
 */
async function askForToken(refused: string | undefined): Promise<string | undefined> {
  const known = currentToken();
  if (known !== undefined && known !== refused) return known;
  if (isDeclined) return undefined;
  if (question === undefined) {
    question = { refused, answer: Promise.withResolvers() };
    changed();
  }
  return await question.answer.promise;
}

/** The reader's answer; undefined: no token. */
export function giveToken(token: string | undefined): void {
  isDeclined = token === undefined;
  if (token !== undefined) sessionStorage.setItem(KEY, token);
  const asked = question;
  question = undefined;
  asked?.answer.resolve(token);
  changed();
}

/** The reader does something that needs a token. */
function mayAskAgain(): void {
  isDeclined = false;
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

const numbers = new Map<string | undefined, number>();

/** Calls of the page go to its own origin. */
export const SERVICE: Connection = {
  url: "",
  // The reader gives tokens until one fits.
  attemptsMax: Number.POSITIVE_INFINITY,
  token: async () => currentToken(),
  anotherToken: askForToken,
  mayAskAgain,
  revision: () => {
    const token = currentToken();
    const known = numbers.get(token) ?? numbers.size;
    numbers.set(token, known);
    return known;
  },
  subscribe: onTokenChange,
};
