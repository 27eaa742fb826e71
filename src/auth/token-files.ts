import { ServiceError } from "../base/errors.ts";
import type { Unit } from "../base/unit.ts";
import type { Principal } from "./principal.ts";
import {
  parseStaticTokens,
  refuseDuplicates,
  type StaticToken,
  StaticTokens,
} from "./static-tokens.ts";
import { fileRefused, WatchedFile, type WatchedFileParts } from "./watched-file.ts";

/**
 * The tokens of both settings: those of the environment never change, those of the file follow the
 * file.
 */
export class TokenFiles implements Unit {
  readonly #inForce = new StaticTokens();
  readonly #authTokens: string | undefined;
  readonly #file: WatchedFile | undefined;
  #ofEnvironment: readonly StaticToken[] = [];

  constructor(parts: Omit<WatchedFileParts, "take">, options: TokenFilesOptions) {
    const { authTokens, authTokensFile: path, filePollMs: pollMs } = options;
    this.#authTokens = authTokens;
    const take = (json: string): void => {
      const tokens = parseStaticTokens(json);
      refuseDuplicates(tokens, this.#ofEnvironment);
      this.#inForce.replace([...this.#ofEnvironment, ...tokens]);
    };
    this.#file =
      path === undefined
        ? undefined
        : new WatchedFile(
            { ...parts, take },
            { file: "tokens", setting: "AUTH_TOKENS_FILE", path, pollMs },
          );
  }

  async start(): Promise<void> {
    this.#takeEnvironment();
    await this.#file?.start();
  }

  /** Reads both settings and rejects as a start does. */
  async check(): Promise<void> {
    this.#takeEnvironment();
    await this.#file?.check();
  }

  /** True when there is no token at all. */
  get isEmpty(): boolean {
    return this.#inForce.isEmpty;
  }

  #takeEnvironment(): void {
    try {
      if (this.#authTokens !== undefined) this.#ofEnvironment = parseStaticTokens(this.#authTokens);
    } catch (error) {
      throw error instanceof ServiceError ? fileRefused(`AUTH_TOKENS: ${error.message}`) : error;
    }
    this.#inForce.replace(this.#ofEnvironment);
  }

  async stop(): Promise<void> {
    await this.#file?.stop();
  }

  find(digest: string): Principal | undefined {
    return this.#inForce.find(digest);
  }

  holds(principal: Principal): boolean {
    return this.#inForce.holds(principal);
  }
}

export interface TokenFilesOptions {
  readonly authTokens: string | undefined;
  readonly authTokensFile: string | undefined;
  readonly filePollMs: number;
}
