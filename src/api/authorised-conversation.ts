import type {
  PushSessionEventsRequest,
  PushSessionEventsResponse,
} from "../../gen/ambient/v1/event_stream_pb.ts";
import { ServiceError } from "../base/errors.ts";
import type { Caller, Conversation, ConversationRecord } from "../contract/context.ts";

/** Returns undefined when the call is allowed; throws or rejects when it is not. */
type Allow = (sessionId: string) => void | Promise<void>;

/**
 * A push stream of a caller who does not see every session. The first frame names the session. The
 * inner stream gets nothing before that session is allowed:
 *
 *   begun ── first frame ── allowed ──────────────────────────► through: all goes on as it comes
 *                 │  └───── has to be looked up ──► asking ───────┘
 *                 └──────── refused ──► over ◄────────┘
 *
 * In the state `asking` this class has answered that no frame may come, so it never keeps a frame.
 */
export class AuthorisedConversation implements Conversation<PushSessionEventsRequest> {
  readonly #behind: Conversation<PushSessionEventsRequest>;
  readonly #caller: Caller<PushSessionEventsResponse>;
  readonly #allow: Allow;
  #state: "begun" | "asking" | "through" | "over" = "begun";
  #sessionId = "";

  constructor(
    behind: Conversation<PushSessionEventsRequest>,
    caller: Caller<PushSessionEventsResponse>,
    allow: Allow,
  ) {
    this.#behind = behind;
    this.#caller = caller;
    this.#allow = allow;
  }

  get record(): ConversationRecord {
    const { record } = this.#behind;
    return record.sessionId === "" ? { ...record, sessionId: this.#sessionId } : record;
  }

  get keptBytes(): number {
    return this.#behind.keptBytes ?? 0;
  }

  heard(request: PushSessionEventsRequest): boolean {
    if (this.#state === "through") return this.#behind.heard(request);
    const { frame } = request;
    // Any other first frame is an error; the inner stream reports it.
    this.#sessionId = frame.case === "open" ? frame.value.sessionId : "";
    try {
      const allowed = this.#allow(this.#sessionId);
      if (allowed === undefined) return this.#begin(request);
      this.#state = "asking";
      void this.#beginAfter(allowed, request);
    } catch (error) {
      this.#refuse(error);
    }
    return false;
  }

  misheard(error: ServiceError): void {
    this.#behind.misheard(error);
  }

  heardAll(): void {
    this.#behind.heardAll();
  }

  sent(): void {
    this.#behind.sent();
  }

  over(error: ServiceError): void {
    this.#state = "over";
    this.#behind.over(error);
  }

  async #beginAfter(allowed: Promise<void>, request: PushSessionEventsRequest): Promise<void> {
    try {
      await allowed;
      if (this.#state === "asking" && this.#begin(request)) this.#caller.hearOn();
    } catch (error) {
      this.#refuse(error);
    }
  }

  #begin(request: PushSessionEventsRequest): boolean {
    this.#state = "through";
    return this.#behind.heard(request);
  }

  #refuse(cause: unknown): void {
    if (this.#state === "over") return;
    const error = ServiceError.from(cause);
    this.over(error);
    this.#caller.end(error);
  }
}
