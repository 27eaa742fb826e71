/**
 * The two watches: check the form, find the cursor, forward the rows of live delivery (states:
 * docs/reading.md). Watchers of a window share rows and messages, so each is encoded once. The filter
 * is applied here and never holds a cursor back: state frames have the last number that was
 * examined.
 */
import {
  type SessionEvent,
  SessionEventSchema,
  type WatchSessionEventsRequest,
} from "@session-ledger/proto/ambient/v1/events_pb";
import {
  type SessionMessage,
  SessionMessageSchema,
  type WatchSessionMessagesRequest,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { serverBusy } from "../base/budget.ts";
import { Pull } from "../base/pull.ts";
import type { Live } from "../live/live.ts";
import type { Delivery, LiveState } from "../live/watcher.ts";
import type { LedgerReader } from "../store/reader.ts";
import { cursorBeyondHead, sessionNotFound } from "../store/failure.ts";
import {
  type EventRow,
  headOf,
  lastSeqOf,
  type RowOf,
  type SessionHead,
  type StoredRow,
  type StreamName,
} from "../store/rows.ts";
import { checkEventTypeFilter, checkText, checkSessionId, refuse } from "../contract/checks.ts";
import { type CallContext, type Handlers, reserveFor } from "../contract/context.ts";
import {
  rowBytesOf,
  toRawEvents,
  toSessionEvent,
  toSessionMessage,
  WrittenEvents,
} from "../contract/rows-to-wire.ts";
import { SHARED_EVENTS_LIMITS, SharedEvents } from "./shared-events.ts";
import { create } from "@bufbuild/protobuf";
import { WatchState } from "@session-ledger/proto/ambient/v1/common_pb";

type RowsWatchRequest = WatchSessionMessagesRequest | WatchSessionEventsRequest;

/** One call: its request, and the parts that belong to its stream. */
interface WatchCall<S extends StreamName, M> {
  readonly stream: S;
  readonly request: RowsWatchRequest;
  /** The call's span records when the watch attached and each change of its state. */
  readonly context: CallContext;
  /** The filter; undefined: every row passes. */
  readonly passes: ((row: RowOf<S>) => boolean) | undefined;
  readonly toWire: (row: RowOf<S>) => M;
  /** Returns the same message for the same row. */
  readonly toSharedWire: (row: RowOf<S>) => M;
  /** A frame that is no row: the watch's state, and the last number that was examined. */
  readonly toFrame: (frame: Pick<SessionMessage, "sessionId" | "watchState" | "seq">) => M;
  /** With `expand`: the events of the row that are above the caller's cursor. */
  readonly expanded: ((row: RowOf<S>, shared: boolean) => Iterable<M>) | undefined;
}

export function createWatchHandlers(
  { live, reader }: { readonly live: Live; readonly reader: Pick<LedgerReader, "resolveCursor"> },
  /** auto: a watch waits for a session that does not exist; strict: NOT_FOUND. */
  options: { readonly sessionPolicy: "auto" | "strict" },
): Pick<Handlers<typeof SessionService>, "watchSessionMessages" | "watchSessionEvents"> {
  const messages = {
    stream: "messages",
    passes: undefined,
    toWire: (row) => toSessionMessage(row),
    toSharedWire: onceARow((row) => toSessionMessage(row)),
    toFrame: (frame) => create(SessionMessageSchema, frame),
    expanded: undefined,
  } satisfies Partial<WatchCall<"messages", SessionMessage>>;
  const events = {
    stream: "events",
    toWire: (row) => toSessionEvent(row),
    toSharedWire: onceARow((row) => toSessionEvent(row)),
    toFrame: (frame) => create(SessionEventSchema, frame),
  } satisfies Partial<WatchCall<"events", SessionEvent>>;
  const sharedEvents = new SharedEvents(events.toSharedWire, SHARED_EVENTS_LIMITS);
  return {
    watchSessionMessages: (request, context) => watch({ ...messages, request, context }),
    watchSessionEvents: (request, context) => {
      const expanded = request.expand ? expansionOf(request, sharedEvents) : undefined;
      return watch({ ...events, request, context, passes: filterOf(request), expanded });
    },
  };

  function watch<S extends StreamName, M>(call: WatchCall<S, M>): Pull<Delivery<S>, M> {
    return pullOf(call, () => follow(call));
  }

  async function follow<S extends StreamName, M>(
    call: WatchCall<S, M>,
  ): Promise<AsyncGenerator<Delivery<S>>> {
    const { stream, request, context } = call;
    check(request);
    const { sessionId } = request;
    const { signal } = context;
    const watcher = await live.attach({ stream, sessionId, signal, acquire: reserveFor(context) });
    context.span?.event("attached");
    try {
      const { head } = watcher;
      const after = await cursorOf(stream, request, head);
      const end = head === undefined ? 0n : headOf(head, stream);
      const until = request.snapshotOnly ? end : undefined;
      const pageForm = call.expanded === undefined ? () => new WrittenEvents() : undefined;
      return watcher.follow({ after, until, pageForm, onRows: counterOf(call) });
    } catch (error) {
      watcher.leave();
      throw error;
    }
  }

  async function cursorOf(
    stream: StreamName,
    request: RowsWatchRequest,
    head: SessionHead | undefined,
  ): Promise<bigint> {
    const { sessionId } = request;
    const afterSeq = cursorIn(request);
    if (head === undefined) {
      if (options.sessionPolicy === "strict") throw sessionNotFound(sessionId);
      return afterSeq;
    }
    const end = headOf(head, stream);
    if (afterSeq > end) throw cursorBeyondHead(end);
    // Both numbers are borders of rows; a returning client is most often at the upper one.
    if (afterSeq === 0n || afterSeq === end) return afterSeq;
    const expand = "expand" in request && request.expand;
    return reader.resolveCursor({ stream, sessionId, afterSeq, expand });
  }
}

/** The messages of a watch, which is attached by the first read. */
function pullOf<S extends StreamName, M>(
  call: WatchCall<S, M>,
  follow: () => Promise<AsyncGenerator<Delivery<S>>>,
): Pull<Delivery<S>, M> {
  const { span, memory } = call.context;
  let state: LiveState = "catching_up";
  return new Pull(follow, (delivery) => {
    if (delivery.kind === "state") {
      state = delivery.state;
      span?.event(state);
    }
    // Rows of a window are shared by all its watchers, and are counted with the windows.
    const isOwn = delivery.kind === "rows" && !delivery.shared;
    if (memory?.resize("rows", isOwn ? rowBytesOf(delivery.rows) : 0) === false) throw serverBusy();
    return wireOf(call, delivery, state);
  });
}

/** Counts the rows in memory; a call without a count of its memory reads no page ahead. */
function counterOf({ context: { memory } }: Pick<WatchCall<never, never>, "context">) {
  if (memory === undefined) return undefined;
  return (rows: readonly StoredRow[]): void => {
    if (!memory.resize("rows", rowBytesOf(rows))) memory.end(serverBusy());
  };
}

function cursorIn({ afterSeq }: RowsWatchRequest): bigint {
  return afterSeq > 0n ? afterSeq : 0n;
}

/** The first row may begin before the cursor; its delivery then begins at the cursor. */
function expansionOf(
  request: WatchSessionEventsRequest,
  sharedEvents: SharedEvents,
): (row: EventRow, shared: boolean) => Iterable<SessionEvent> {
  const afterSeq = cursorIn(request);
  return (row, shared) => (shared ? sharedEvents.of(row, afterSeq) : toRawEvents(row, afterSeq));
}

function* wireOf<S extends StreamName, M>(
  call: WatchCall<S, M>,
  delivery: Delivery<S>,
  state: LiveState,
): Generator<M> {
  const { passes, request, expanded } = call;
  const { sessionId, stateFrames } = request;
  if (delivery.kind === "state") {
    const asked = expanded === undefined ? 0n : cursorIn(request);
    // For a cursor inside a row, the watch starts below it, at the row's beginning.
    const seq = delivery.seq > asked ? delivery.seq : asked;
    if (stateFrames) yield call.toFrame({ sessionId, seq, watchState: WATCH_STATE[state] });
    return;
  }
  const toWire = delivery.shared ? call.toSharedWire : call.toWire;
  let last: RowOf<S> | undefined;
  for (const row of delivery.rows) {
    const passed = passes === undefined || passes(row);
    last = passed ? undefined : row;
    if (!passed) continue;
    if (expanded === undefined) yield toWire(row);
    else yield* expanded(row, delivery.shared);
  }
  if (stateFrames && last !== undefined) {
    yield call.toFrame({ sessionId, seq: lastSeqOf(last), watchState: WATCH_STATE[state] });
  }
}

function check(request: RowsWatchRequest): void {
  refuse([
    checkSessionId(request.sessionId),
    "eventTypes" in request ? checkEventTypeFilter(request.eventTypes) : undefined,
    "runId" in request ? checkText("run_id", request.runId) : undefined,
  ]);
}

function filterOf(request: WatchSessionEventsRequest): ((row: EventRow) => boolean) | undefined {
  const { runId } = request;
  if (runId === "" && request.eventTypes.length === 0) return undefined;
  const types = new Set(request.eventTypes);
  return (row) =>
    (types.size === 0 || types.has(row.eventType)) && (runId === "" || row.runId === runId);
}

/** Makes one message per row, and keeps it as long as the row is in memory. */
function onceARow<R extends StoredRow, M>(toWire: (row: R) => M): (row: R) => M {
  const made = new WeakMap<R, M>();
  return (row) => {
    const existing = made.get(row);
    if (existing !== undefined) return existing;
    const message = toWire(row);
    made.set(row, message);
    return message;
  };
}

export const WATCH_STATE = {
  catching_up: WatchState.CATCHING_UP,
  live: WatchState.LIVE,
  degraded: WatchState.DEGRADED,
} as const satisfies Record<LiveState, WatchState>;
