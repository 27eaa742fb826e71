/**
 * Server-sent events by fetch, because an EventSource sends no token.
 *
 *   connecting ── answer ──► open ── connection lost ──► reconnecting ── answer ──► open
 *        │                    │ tab hidden for a while ──► paused ── tab shown ──► connecting
 *        └── refusal ─────────┴── an error that will not pass ──► ended
 *
 * A browser opens six connections to a service, for all its tabs together. So a tab that nobody
 * sees closes its streams, and continues each after its last number when it is shown again.
 */
import { call } from "./client.ts";
import { ApiError, NoAnswer } from "./errors.ts";
import type { Connection } from "./connection.ts";
import { SseParser, type StreamEvent } from "./sse-parser.ts";

export type { StreamEvent } from "./sse-parser.ts";

export type StreamState = "connecting" | "open" | "reconnecting" | "paused" | "ended";

export interface StreamOptions {
  readonly connection: Connection;
  /** With all its parameters. */
  readonly address: string;
  /** Continues after this event. */
  readonly lastEventId?: string;
  readonly onEvent: (event: StreamEvent) => void;
  /** Each id, also one without an event. */
  readonly onId?: (id: string) => void;
  readonly onComment?: (text: string) => void;
  readonly onState?: (state: StreamState, problem?: Error) => void;
}

/** Waits before a new connection, doubled after each failure, with a random part. */
const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 10_000;

/** The service sends a comment each 15 s by default; a longer silence is a lost connection. */
const SILENCE_MAX_MS = 60_000;

const HIDDEN_MAX_MS = 30_000;

/** Refusals that a later try will not change. */
function isFinal(error: unknown): boolean {
  return error instanceof ApiError && error.status < 500 && ![408, 429].includes(error.status);
}

/** Follows the stream until the returned function is called. */
export function openStream(options: StreamOptions): () => void {
  const stream = new Stream(options);
  stream.start();
  return () => stream.stop();
}

class Stream {
  readonly #options: StreamOptions;
  #lastEventId: string | undefined;
  #retryMs: number | undefined;
  #failures = 0;
  #connection: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #hiddenTimer: ReturnType<typeof setTimeout> | undefined;
  #isStopped = false;
  #isPaused = false;
  #wasOpen = false;

  constructor(options: StreamOptions) {
    this.#options = options;
    this.#lastEventId = options.lastEventId;
  }

  start(): void {
    document.addEventListener("visibilitychange", this.#shown);
    addEventListener("online", this.#online);
    this.#connect();
  }

  stop(): void {
    this.#isStopped = true;
    document.removeEventListener("visibilitychange", this.#shown);
    removeEventListener("online", this.#online);
    clearTimeout(this.#timer);
    clearTimeout(this.#hiddenTimer);
    this.#connection?.abort();
  }

  readonly #shown = (): void => {
    clearTimeout(this.#hiddenTimer);
    if (document.hidden) {
      this.#hiddenTimer = setTimeout(() => this.#pause(), HIDDEN_MAX_MS);
    } else if (this.#isPaused) {
      this.#isPaused = false;
      this.#connect();
    }
  };

  /** The network is back: no reason to wait longer. */
  readonly #online = (): void => {
    if (this.#isStopped || this.#isPaused || this.#connection !== undefined) return;
    clearTimeout(this.#timer);
    this.#connect();
  };

  #pause(): void {
    this.#isPaused = true;
    clearTimeout(this.#timer);
    this.#connection?.abort();
    this.#reportState("paused");
  }

  #reportState(state: StreamState, problem?: Error): void {
    this.#options.onState?.(state, problem);
  }

  #connect(): void {
    this.#reportState(this.#wasOpen || this.#failures > 0 ? "reconnecting" : "connecting");
    const connection = new AbortController();
    this.#connection = connection;
    void this.#follow(connection).then(
      () => this.#lost(connection, undefined),
      (error: unknown) => this.#lost(connection, error),
    );
  }

  #lost(connection: AbortController, error: unknown): void {
    if (this.#connection === connection) this.#connection = undefined;
    if (this.#isStopped || this.#isPaused) return;
    const problem = error instanceof Error ? error : undefined;
    if (isFinal(error)) {
      this.stop();
      this.#reportState("ended", problem);
      return;
    }
    this.#failures += 1;
    this.#reportState("reconnecting", problem);
    const doubled = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** Math.min(this.#failures - 1, 10));
    const waitMs = this.#failures === 1 ? (this.#retryMs ?? doubled) : doubled;
    this.#timer = setTimeout(() => this.#connect(), waitMs * (0.5 + Math.random() / 2));
  }

  /** Ends when the connection does. */
  async #follow(connection: AbortController): Promise<void> {
    const { signal } = connection;
    const id = this.#lastEventId;
    const headers = {
      accept: "text/event-stream",
      ...(id !== undefined && { "last-event-id": id }),
    };
    const { connection: to, address } = this.#options;
    const response = await call(to, address, { signal, headers });
    if (response.body === null) throw new NoAnswer(undefined);
    this.#wasOpen = true;
    this.#failures = 0;
    this.#reportState("open");
    let problem: ApiError | undefined;
    const parser = new SseParser({
      id: (last) => {
        this.#lastEventId = last;
        this.#options.onId?.(last);
      },
      event: (event) => {
        if (this.#isStopped) return;
        if (event.type === "error") problem = endOf(event.data);
        else this.#options.onEvent(event);
      },
      comment: (text) => this.#options.onComment?.(text),
      retry: (ms) => {
        this.#retryMs = ms;
      },
    });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const silence = setTimeout(() => connection.abort(), SILENCE_MAX_MS);
      const { done, value } = await reader.read().finally(() => clearTimeout(silence));
      if (done) break;
      parser.push(value);
    }
    // A token that has ended is asked for by the next connection.
    if (problem !== undefined && problem.status !== 401) throw problem;
  }
}

/** The last event of a stream that ends with an error is a problem. */
function endOf(data: string): ApiError {
  try {
    const { status, detail, title, reason } = JSON.parse(data);
    return new ApiError(Number(status), String(detail ?? title), { reason: String(reason) });
  } catch {
    return new ApiError(500, "the stream ended with an error");
  }
}
