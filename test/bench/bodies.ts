/**
 * Request bodies for h2load, which sends one file as the body of every request. It reads the file for
 * each request again (file_read_callback in its h2load_http2_session.cc), so a body can have a field
 * that the benchmark overwrites while the load runs: the last character of the session id, which makes
 * one connection write to a set of sessions, or the end of the idempotency key.
 */
import { create, toBinary } from "@bufbuild/protobuf";
import { PushSessionEventRequestSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import type { Shape } from "./shapes.ts";

const PAYLOAD_BYTES = 600;
const KEY_DIGITS = 6;

export interface Body {
  /** Every session that it may write to. */
  readonly sessionIds: readonly string[];
  /** The message, without the frame that gRPC puts around it. */
  readonly message: Uint8Array;
  /** The bytes that are overwritten at each tick, in the framed body. */
  readonly turning: Turning | undefined;
}

interface Turning {
  readonly offset: number;
  textAt(tick: number): string;
}

/** A frame's flag and length. */
const FRAME_BYTES = 5;

/** Of one connection; `run` keeps the sessions of one run from those of another. */
export function bodyOf(
  shape: Shape,
  { run, connection }: { readonly run: string; readonly connection: number },
): Body {
  const { sessionsEach } = shape;
  const place = sessionsEach === "shared" ? "shared" : String(connection);
  const count = sessionsEach === "shared" ? 1 : sessionsEach;
  const sessionIds = Array.from({ length: count }, (_, n) => `bench-${run}-${place}-${n}`);
  const sessionId = sessionIds[0] ?? "";
  const idempotencyKey = shape.keyed ? `key-${connection}-${"0".repeat(KEY_DIGITS)}` : "";
  const payload = payloadOf(shape.event);
  const message = toBinary(
    PushSessionEventRequestSchema,
    create(PushSessionEventRequestSchema, {
      sessionId,
      eventType: shape.event,
      payload,
      idempotencyKey,
    }),
  );
  const endOf = (text: string): number =>
    FRAME_BYTES + Buffer.from(message).indexOf(text) + text.length;
  return { sessionIds, message, turning: turningOf() };

  function turningOf(): Turning | undefined {
    if (shape.keyed) {
      return {
        offset: endOf(idempotencyKey) - KEY_DIGITS,
        textAt: (tick) => tick.toString(16).padStart(KEY_DIGITS, "0").slice(-KEY_DIGITS),
      };
    }
    if (count === 1) return undefined;
    return { offset: endOf(sessionId) - 1, textAt: (tick) => String(tick % count) };
  }
}

/** A valid event, exactly PAYLOAD_BYTES long as JSON. */
export function payloadOf(event: Shape["event"]): string {
  const text = (filler: string): string =>
    JSON.stringify(
      event === "TEXT_MESSAGE_CONTENT"
        ? { type: event, messageId: "msg-0123456789", delta: filler }
        : { type: event, threadId: "thread-0123456789", runId: "run-0123456789", note: filler },
    );
  const prose = "The quick brown fox jumps over the lazy dog. ".repeat(20);
  return text(prose.slice(0, PAYLOAD_BYTES - text("").length));
}
