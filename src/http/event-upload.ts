/**
 * A push stream whose events come in the body of an HTTP request: another edge of the handler of
 * PushSessionEvents. The lines that one read of the socket completes become one batch. The answer
 * comes when the stream is over, and tells what is stored.
 *
 *   begun ── opened ──► reading ── the handler takes no more, or there is no memory ──► paused
 *     │                   │  ▲                                                            │
 *     │ refused           │  └─────────────────── committed, or room ─────────────────────┘
 *     │                   ├── end of the body ───────────────┐
 *     │                   ├── a line that is late or wrong ──┼──► ending: all taken events are
 *     │                   ├── the service or the token ends ─┘    committed ──► over
 *     │                   ├── fenced, deleted, ingest refuses ────────────────► over
 *     ▼                   └── the caller left: its complete lines are committed, nobody waits
 *   over
 *
 * A line may take as long as a request (60 s); between two lines a body may be silent for any time,
 * as an agent is that thinks. So TCP asks for a sign of life: a host that is gone would keep its place
 * among the push streams otherwise.
 */
import type { IncomingMessage } from "node:http";
import type {
  PushSessionEventsRequest,
  PushSessionEventsResponse,
} from "../../gen/ambient/v1/event_stream_pb.ts";
import type { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import type { CallMemory } from "../auth/caller-memory.ts";
import type { Principal } from "../auth/principal.ts";
import { invalidArgument, ServiceError } from "../base/errors.ts";
import type { CallContext, Caller, Conversation, Handlers } from "../contract/context.ts";
import { errorOfStatus } from "../contract/google-status.ts";
import { type LineFault, LineReader, type Lines } from "./plumbing/lines.ts";
import { mayTakeLong } from "./plumbing/listener.ts";
import { HttpRefusal } from "./plumbing/problem.ts";

/** Refused events that the answer describes; it counts all of them. */
export const REFUSED_SHOWN_MAX = 100;

/** Events of one batch: a read of 64 KiB has room for 32,768 lines. */
const BATCH_EVENTS_MAX = 8_192;

const TCP_KEEP_ALIVE_MS = 60_000;

type Handle = Handlers<typeof SessionService>["pushSessionEvents"];

export interface UploadOptions {
  readonly sessionId: string;
  /** 0: one above the highest of the session. */
  readonly producerEpoch: bigint;
  /** The number of the first event. */
  readonly firstClientSeq: bigint;
  /** The events, or the body that has one in each line. */
  readonly events: readonly string[] | IncomingMessage;
  /** A line must be complete this long after its first byte. */
  readonly lineLimitMs: number;
  readonly lineBytesMax: number;
}

export interface RefusedEvent {
  readonly clientSeq: bigint;
  readonly error: ServiceError;
}

/** What is stored when the stream is over. */
export interface Uploaded {
  /** Undefined: the stream did not open. */
  readonly producerEpoch: bigint | undefined;
  /** The last committed number of the epoch. */
  readonly lastClientSeq: bigint;
  /** The events of this request; 0: none is stored. */
  readonly firstSeq: bigint;
  readonly lastSeq: bigint;
  readonly refused: readonly RefusedEvent[];
  readonly refusedCount: number;
  /** Undefined: every event was taken. */
  readonly error: ServiceError | undefined;
}

/** Resolves when the stream is over; never rejects. */
export function upload(
  handle: Handle,
  context: CallContext,
  options: UploadOptions,
): Promise<Uploaded> {
  const stream = new Upload(context, options);
  stream.begin(handle);
  return stream.over;
}

class Upload implements Caller<PushSessionEventsResponse> {
  readonly over: Promise<Uploaded>;
  readonly #resolve: (uploaded: Uploaded) => void;
  readonly #context: CallContext;
  readonly #options: UploadOptions;
  readonly #body: IncomingMessage | undefined;
  readonly #reader: LineReader;
  #conversation: Conversation<PushSessionEventsRequest> | undefined;
  /** Events that the handler has not got. */
  #events: readonly string[] = [];
  #eventsBytes = 0;
  #next: bigint;
  /** The handler takes the next message. */
  #mayTell = false;
  #isTelling = false;
  /** Nothing comes after #events: the body has ended, or cannot be read further. */
  #hasAll = false;
  #fault: ServiceError | undefined;
  /** The handler knows that nothing more comes. */
  #hasToldAll = false;
  #hasRead = false;
  #stoppedBy: ServiceError | undefined;
  #isOver = false;
  #lineTimer: NodeJS.Timeout | undefined;
  #producerEpoch: bigint | undefined;
  #lastClientSeq = 0n;
  #firstSeq = 0n;
  #lastSeq = 0n;
  readonly #refused: RefusedEvent[] = [];
  #refusedCount = 0;

  constructor(context: CallContext, options: UploadOptions) {
    const { promise, resolve } = Promise.withResolvers<Uploaded>();
    this.over = promise;
    this.#resolve = resolve;
    this.#context = context;
    this.#options = options;
    this.#next = options.firstClientSeq;
    this.#reader = new LineReader({ bytesMax: options.lineBytesMax });
    if ("readable" in options.events) {
      this.#body = options.events;
    } else {
      this.#events = options.events;
      this.#hasAll = true;
    }
  }

  get principal(): Principal {
    return this.#context.principal;
  }

  get memory(): CallMemory | undefined {
    return this.#context.memory;
  }

  /** Answers are counted here and not sent. */
  get unsentBytes(): number {
    return 0;
  }

  begin(handle: Handle): void {
    const { sessionId, producerEpoch } = this.#options;
    const { signal } = this.#context;
    signal.addEventListener("abort", this.#stop);
    if (signal.aborted) return this.#stop();
    this.#guarded(() => {
      this.#conversation = handle(this);
      const value = {
        $typeName: "ambient.v1.Open",
        sessionId,
        producerEpoch,
        compression: 0,
        maxAgeMs: 0,
        maxTextBytes: 0,
        stopOnRefused: false,
      } as const;
      this.#tell({ case: "open", value });
      this.#tellOn();
    });
  }

  send({ frame }: PushSessionEventsResponse): void {
    if (frame.case === "opened") {
      ({ producerEpoch: this.#producerEpoch, lastClientSeq: this.#lastClientSeq } = frame.value);
    } else if (frame.case === "committed") {
      const { lastClientSeq, firstSeq, lastSeq } = frame.value;
      this.#lastClientSeq = lastClientSeq;
      this.#firstSeq = firstSeq;
      this.#lastSeq = lastSeq;
      this.#weigh();
    } else if (frame.case === "refused") {
      const { clientSeq, status } = frame.value;
      this.#refusedCount += 1;
      if (status === undefined || this.#refused.length >= REFUSED_SHOWN_MAX) return;
      this.#refused.push({ clientSeq, error: errorOfStatus(status) });
    }
  }

  hearOn(): void {
    this.#mayTell = true;
    this.#guarded(() => this.#tellOn());
  }

  end(error?: ServiceError): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#context.signal.removeEventListener("abort", this.#stop);
    this.#leaveBody();
    this.#resolve({
      producerEpoch: this.#producerEpoch,
      lastClientSeq: this.#lastClientSeq,
      firstSeq: this.#firstSeq,
      lastSeq: this.#lastSeq,
      refused: this.#refused,
      refusedCount: this.#refusedCount,
      error: error ?? this.#stoppedBy,
    });
  }

  /** Gives the handler all it takes, then reads on. */
  #tellOn(): void {
    if (this.#isTelling) return;
    this.#isTelling = true;
    while (this.#mayTell && !this.#isOver && !this.#hasToldAll) {
      if (this.#events.length > 0) this.#tellEvents();
      else if (this.#hasAll) this.#tellAll(this.#fault);
      else break;
    }
    this.#isTelling = false;
    if (this.#mayTell) this.#readOn();
  }

  #tellEvents(): void {
    const payloads = this.#events.slice(0, BATCH_EVENTS_MAX);
    this.#events = this.#events.slice(BATCH_EVENTS_MAX);
    const events = payloads.map(rawEvent);
    const firstClientSeq = this.#next;
    this.#next += BigInt(events.length);
    this.#tell({ case: "batch", value: { $typeName: "ambient.v1.Batch", firstClientSeq, events } });
    if (this.#events.length > 0) return;
    this.#eventsBytes = 0;
    this.#weigh();
    this.memory?.charge.stopWaiting();
  }

  #tell(frame: PushSessionEventsRequest["frame"]): void {
    this.#mayTell = false;
    const message = { $typeName: "ambient.v1.PushSessionEventsRequest", frame } as const;
    if (this.#conversation?.heard(message) === true) this.#mayTell = true;
  }

  #tellAll(fault: ServiceError | undefined): void {
    this.#hasToldAll = true;
    this.#leaveBody();
    if (fault === undefined) this.#conversation?.heardAll();
    else this.#conversation?.misheard(fault);
  }

  #readOn(): void {
    const body = this.#body;
    if (body === undefined || this.#isOver || this.#hasAll) return;
    if (!this.#hasRead) {
      this.#hasRead = true;
      mayTakeLong(body);
      body.socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
      if (this.memory !== undefined) this.memory.charge.canWait = true;
      body.on("data", this.#came).once("end", this.#cameAll);
    }
    if (!this.#waitsForRoom()) this.#resume(body);
  }

  #resume(body: IncomingMessage): void {
    if (this.#isOver || this.#hasAll) return;
    this.#watchLine();
    body.resume();
  }

  /** The piece of a caller that is asked to wait stays with the socket. */
  #pause(body: IncomingMessage): void {
    body.pause();
    this.#unwatchLine();
  }

  readonly #came = (piece: Buffer): void => {
    this.#guarded(() => {
      this.#eventsBytes += piece.length;
      const read = this.#reader.read(piece);
      if (read.lines.length > 0) this.#unwatchLine();
      this.#take(read);
      const body = this.#body;
      if (body === undefined || this.#isOver || this.#hasAll) return;
      if (!this.#mayTell) this.#pause(body);
      else if (!this.#waitsForRoom()) this.#watchLine();
    });
  };

  readonly #cameAll = (): void => {
    this.#guarded(() => {
      const last = this.#reader.readLast();
      this.#hasAll = true;
      this.#take(last);
    });
  };

  #take({ lines, fault }: Lines): void {
    this.#events = this.#events.length === 0 ? lines : [...this.#events, ...lines];
    if (this.#events.length === 0) this.#eventsBytes = 0;
    if (fault !== undefined) {
      const number = this.#next + BigInt(this.#events.length);
      this.#hasAll = true;
      this.#fault = faultOf(fault, number, this.#options);
    }
    this.#weigh();
    this.#tellOn();
  }

  /** True when the body is not read before there is memory for it. */
  #waitsForRoom(): boolean {
    const body = this.#body;
    const charge = this.memory?.charge;
    if (body === undefined || charge === undefined || charge.hasRoom) return false;
    this.#pause(body);
    charge.wait(() => this.#resume(body));
    return true;
  }

  /** A line that has begun must be complete in time; the time starts again with each line. */
  #watchLine(): void {
    if (!this.#reader.isInLine) return;
    this.#lineTimer ??= setTimeout(() => this.#late(), this.#options.lineLimitMs);
  }

  #unwatchLine(): void {
    clearTimeout(this.#lineTimer);
    this.#lineTimer = undefined;
  }

  #late(): void {
    this.#hasAll = true;
    this.#fault ??= new HttpRefusal(408, "the line did not arrive in time");
    this.#guarded(() => this.#tellOn());
  }

  #weigh(): void {
    const keptBytes = this.#conversation?.keptBytes ?? 0;
    this.memory?.requestSoFar(this.#reader.heldBytes + this.#eventsBytes + keptBytes);
  }

  /** The caller left, or the service, the token or the memory of the call ends. */
  readonly #stop = (): void => {
    const error = ServiceError.from(this.#context.signal.reason);
    if (this.#isOver) return;
    const isLeft = error.code === "cancelled";
    if (isLeft || this.#producerEpoch === undefined) {
      this.#conversation?.over(error);
      this.end(error);
    } else if (!this.#hasToldAll) {
      this.#stoppedBy = error;
      this.#events = [];
      this.#guarded(() => this.#tellAll(undefined));
    }
  };

  #leaveBody(): void {
    this.#hasAll = true;
    this.#unwatchLine();
    // Node drops what still comes.
    this.#body?.off("data", this.#came).off("end", this.#cameAll).resume();
  }

  /** A handler that throws refuses, or is defect; the answer comes in any case. */
  #guarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.end(ServiceError.from(error));
    }
  }
}

function rawEvent(payload: string) {
  return { $typeName: "ambient.v1.RawEvent", eventType: "", payload } as const;
}

function faultOf(fault: LineFault, number: bigint, { lineBytesMax }: UploadOptions): ServiceError {
  const line = `the line of event ${number}`;
  if (fault === "not UTF-8")
    return invalidArgument([{ field: "", description: `${line} is not UTF-8` }]);
  const message = `${line} has more than ${lineBytesMax} bytes`;
  return new ServiceError("overloaded", "REQUEST_TOO_LARGE", message);
}
