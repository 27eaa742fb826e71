/**
 * Events of a runner for the readers of a session: lines for developers, CUSTOM events of the
 * platform. Between runs AG-UI allows none, so they wait for the next run
 * (middleware/developer-events.ts).
 */
interface DeveloperEvent {
  readonly type: string;
  readonly [member: string]: unknown;
}

/** The prefix of a developer line's id: only the id distinguishes it from the agent's output. */
const LINE_ID_PREFIX = "setup-note-";

/** A line of `notes.developer`, which is for readers and no part of the agent's conversation. */
export function isDeveloperLine({
  id,
  role,
}: {
  readonly id: string;
  readonly role: string;
}): boolean {
  return role === "developer" && id.startsWith(LINE_ID_PREFIX);
}

/** The waiting notes of a session; the oldest one is dropped. */
const WAITING_MAX = 100;

/** The names of CUSTOM events that pages of the Ambient platform know. */
export type AmbientName =
  | "ambient:capabilities"
  | "ambient:repo_added"
  | "ambient:repo_removed"
  | "ambient:workflow_changed"
  | "ambient:setup_error"
  | "ambient:model_switched"
  | "ambient:trace_id";

/** The key of notes for all sessions while no session has run; the first one gets them. */
const ANY_SESSION = "";

export class DeveloperEvents {
  readonly #waiting = new Map<string, DeveloperEvent[]>();
  /** Sessions that this process has run. */
  readonly #served = new Set<string>();
  /** The runner passes problems to its own `onProblem`. */
  onProblem: (message: string, sessionId: string) => void = () => {};

  /** A line for developers that is also a problem of the runner. */
  problem(text: string, sessionId: string): void {
    this.developer(text, sessionId);
    this.onProblem(text, sessionId);
  }

  /** A line about the setup, such as "Workspace validated". Without a session: for all sessions. */
  developer(text: string, sessionId?: string): void {
    const messageId = `${LINE_ID_PREFIX}${crypto.randomUUID()}`;
    const events = [
      { type: "TEXT_MESSAGE_START", messageId, role: "developer" },
      { type: "TEXT_MESSAGE_CONTENT", messageId, delta: text },
      { type: "TEXT_MESSAGE_END", messageId },
    ];
    if (text !== "") this.#add(events, sessionId);
  }

  /** A CUSTOM event. Without a session: for all sessions. */
  custom(name: AmbientName, value: unknown, sessionId?: string): void {
    this.#add([{ type: "CUSTOM", name, value }], sessionId);
  }

  /** True: this process has run the session. */
  hasServed(sessionId: string): boolean {
    return this.#served.has(sessionId);
  }

  /** The waiting events, before the next event of the session's run. */
  take(sessionId: string): readonly DeveloperEvent[] {
    this.#served.add(sessionId);
    if (this.#waiting.size === 0) return NONE;
    const keys = [ANY_SESSION, sessionId];
    const events = keys.flatMap((key): readonly DeveloperEvent[] => this.#waiting.get(key) ?? NONE);
    for (const key of keys) this.#waiting.delete(key);
    return events;
  }

  /** The session is left. */
  forget(sessionId: string): void {
    this.#waiting.delete(sessionId);
    this.#served.delete(sessionId);
  }

  #add(events: readonly DeveloperEvent[], sessionId: string | undefined): void {
    const all = this.#served.size > 0 ? [...this.#served] : [ANY_SESSION];
    for (const key of sessionId === undefined ? all : [sessionId]) {
      const waiting = [...(this.#waiting.get(key) ?? NONE), ...events];
      while (waiting.length > WAITING_MAX) dropOldest(waiting);
      this.#waiting.set(key, waiting);
    }
  }
}

const NONE: readonly never[] = [];

/** All events of a text, or one CUSTOM. */
function dropOldest(waiting: DeveloperEvent[]): void {
  const messageId = waiting[0]?.["messageId"];
  const next = waiting.findIndex((note, at) => at > 0 && note["messageId"] !== messageId);
  waiting.splice(0, messageId === undefined ? 1 : next);
}
