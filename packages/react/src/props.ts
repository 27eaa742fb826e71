/** What an app gives to a view, and what is wrong with it; pure. */

/** A token, or a function that has one. */
export type Token = string | (() => string | Promise<string>);

export interface SessionProblem {
  /**
   * For programs: a reason of the service, such as `SESSION_NOT_FOUND` or `UNAUTHENTICATED`; `NO_ANSWER`,
   * `BAD_PROPS` or `FAILED` of the view; empty if it has none.
   */
  readonly reason: string;
  /** For people, as the view shows it. */
  readonly message: string;
}

export interface SessionViewProps {
  /** Where the service answers HTTP, such as `https://ledger.example`; a path may follow. */
  readonly url: string;
  /** The id of the session. Another id, or another `url`, opens another session. */
  readonly session: string;
  /**
   * The token of the reader. A function is called before the first request, and once more when the service
   * has refused its token. Without it the requests have no token.
   */
  readonly token?: Token | undefined;
  /** `system`, the default, is what the browser prefers. */
  readonly theme?: "light" | "dark" | "system" | undefined;
  /** `conversation` leaves out the timeline, the events and the state. */
  readonly parts?: "all" | "conversation" | undefined;
  /**
   * Called with the id of another session when a reader wants to see it: the origin of this one, or a fork.
   * Without it these are no links, and the view makes no forks.
   */
  readonly onOpen?: ((session: string) => void) | undefined;
  /** Called once for each problem that the view shows in place of the session. */
  readonly onError?: ((problem: SessionProblem) => void) | undefined;
}

/** What a header can carry, and at most what the service reads of one (docs/security.md). */
const TOKEN = /^[!-~]{1,8192}$/;
export const TOKEN_EXPECTED = "1 to 8,192 visible ASCII characters without spaces";

export function isToken(value: unknown): value is string {
  return typeof value === "string" && TOKEN.test(value);
}

/** Programs without types give other values too. */
export type Given = Readonly<Record<keyof SessionViewProps, unknown>>;

/** The first prop that is not usable, and what was expected. */
export function faultIn(props: Partial<Given>): string | undefined {
  const { url, session, token, theme, parts } = props;
  if (typeof url !== "string" || !isHttp(url))
    return `url: ${shown(url)}, expected the http or https address of the service, without a query`;
  if (typeof session !== "string" || session === "")
    return `session: ${shown(session)}, expected the id of a session`;
  if (token !== undefined && typeof token !== "function" && !isToken(token))
    return `token: expected ${TOKEN_EXPECTED}, or a function`;
  if (![undefined, "light", "dark", "system"].some((one) => one === theme))
    return `theme: ${shown(theme)}, expected light, dark or system`;
  if (![undefined, "all", "conversation"].some((one) => one === parts))
    return `parts: ${shown(parts)}, expected all or conversation`;
  return undefined;
}

function isHttp(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || !["http:", "https:"].includes(url.protocol)) return false;
  return url.search === "" && url.hash === "" && url.username === "" && url.password === "";
}

const SHOWN_CHARS_MAX = 200;

function shown(value: unknown): string {
  return value === "" ? "empty" : String(value).slice(0, SHOWN_CHARS_MAX);
}
