/** Where calls go, and with which token: of the inspector's page, or of an app around a view. */

export interface Connection {
  /** Before every path, without a slash at its end; empty: the origin of the page. */
  readonly url: string;
  /** How many tokens one call may try. */
  readonly attemptsMax: number;
  /** Of the next call; undefined: it sends none. */
  readonly token: () => Promise<string | undefined>;
  /** After a refusal for lack of a valid token; undefined: no other token, so the call fails. */
  readonly anotherToken: (refused: string | undefined) => Promise<string | undefined>;
  /** The reader does something that needs a token. */
  readonly mayAskAgain: () => void;
  /** Changes when another token may have other rights. */
  readonly revision: () => number;
  readonly subscribe: (listener: () => void) => () => void;
}
