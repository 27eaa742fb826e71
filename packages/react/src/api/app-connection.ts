import { ApiError } from "./errors.ts";
import { isToken, type Token, TOKEN_EXPECTED } from "../props.ts";
import type { Connection } from "./connection.ts";

/** For a view: its token is that of the app, which is asked once more after a refusal. */
export class AppConnection implements Connection {
  readonly url: string;
  readonly attemptsMax = 2;
  #given: Token | undefined;
  /** The last answer of the function; undefined: it was not asked yet. */
  #known: string | undefined;
  /** Calls that need a token at the same time ask once. */
  #asked: Promise<string> | undefined;
  #revision = 0;
  readonly #listeners = new Set<() => void>();

  constructor(url: string) {
    this.url = url.replace(/\/+$/, "");
  }

  /** Apps make another function with each render, so it alone does not change the token. */
  give(token: Token | undefined): void {
    const before = this.#given;
    this.#given = token;
    const isFunction = typeof before === "function" && typeof token === "function";
    if (isFunction || before === token) return;
    this.#known = undefined;
    if (before !== undefined) this.#changed();
  }

  readonly token = async (): Promise<string | undefined> => {
    if (typeof this.#given !== "function") return this.#given;
    return this.#known ?? (await this.#ask(this.#given));
  };

  readonly anotherToken = async (refused: string | undefined): Promise<string | undefined> => {
    const given = this.#given;
    if (typeof given !== "function") return given === refused ? undefined : given;
    // Another call was refused before, and has asked.
    if (this.#known !== undefined && this.#known !== refused) return this.#known;
    const next = await this.#ask(given);
    return next === refused ? undefined : next;
  };

  /** The app decides when it has another token. */
  readonly mayAskAgain = (): void => undefined;

  readonly revision = (): number => this.#revision;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  async #ask(ask: () => string | Promise<string>): Promise<string> {
    this.#asked ??= this.#answer(ask).finally(() => {
      this.#asked = undefined;
    });
    return await this.#asked;
  }

  async #answer(ask: () => string | Promise<string>): Promise<string> {
    return this.#take(await ask());
  }

  #take(token: unknown): string {
    if (!isToken(token)) {
      const message = `token: the function gave none, expected ${TOKEN_EXPECTED}`;
      throw new ApiError(401, message, { reason: "UNAUTHENTICATED" });
    }
    const before = this.#known;
    this.#known = token;
    if (before !== undefined && before !== token) this.#changed();
    return token;
  }

  #changed(): void {
    this.#revision += 1;
    for (const listener of this.#listeners) listener();
  }
}
