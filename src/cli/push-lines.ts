/** The lines of an input as rows, and their idempotency keys. */
import { createHash } from "node:crypto";
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import type { Fragments } from "@session-ledger/proto/ambient/v1/compression_pb";
import {
  type SessionMessage,
  SessionMessageSchema,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import { isObject, parseJson, textOf } from "@session-ledger/agui/json";
import {
  decodeLine,
  isBlank,
  type Line,
  LINE_BYTES_MAX,
} from "@session-ledger/runner/internal/lines";

export const FORMS = ["events", "messages", "text"] as const;
export type InputForm = (typeof FORMS)[number];

export interface LineRefusal {
  readonly reason: string;
  readonly message: string;
}

export type RowLine =
  | {
      readonly kind: "row";
      readonly eventType: string;
      readonly payload: string;
      /** Of a merged row. */
      readonly eventCount?: number;
      readonly fragments?: Fragments;
    }
  | ({ readonly kind: "row" } & Pick<SessionMessage, "eventType" | "payload" | "sender" | "sentAt">)
  | { readonly kind: "empty" }
  /** The line is not a row; the service never sees it. */
  | ({ readonly kind: "refused" } & LineRefusal);

/** Classifies a line of input. The payload of an event, and of a text, is the line, byte for byte. */
export function rowLine(line: Line, form: InputForm): RowLine {
  if (line.bytes === undefined) {
    return refused("LINE_TOO_LONG", `the line is longer than ${LINE_BYTES_MAX} bytes`);
  }
  const payload = decodeLine(line);
  if (payload === undefined) return refused("NOT_UTF8", "the line is not UTF-8");
  if (isBlank(payload)) return { kind: "empty" };
  if (form === "text") return { kind: "row", eventType: "user", payload };
  if (form === "messages") return messageOf(payload);
  const event = parseJson(payload);
  if (!isObject(event)) return refused("NOT_JSON", "the line is not a JSON object");
  const eventType = textOf(event["type"]) ?? "";
  if (eventType === "") return refused("NO_TYPE", "the event has no `type`");
  return { kind: "row", eventType, payload };
}

/** As `tail` and `export` print a message; its number, id and time are those of its session. */
function messageOf(text: string): RowLine {
  try {
    const json: JsonValue = JSON.parse(text);
    const message = fromJson(SessionMessageSchema, json, { ignoreUnknownFields: true });
    const { eventType, payload, sender, sentAt } = message;
    if (eventType === "") return refused("NO_TYPE", "the message has no `eventType`");
    return { kind: "row", eventType, payload, sender, sentAt };
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return refused("NOT_A_MESSAGE", `the line is not a message: ${why}`);
  }
}

function refused(reason: string, message: string): RowLine {
  return { kind: "refused", reason, message };
}

/** 128 bits: enough that two inputs of one session never collide by chance. */
const DIGEST_HEX = 32;

/**
 * One key per line, made from that line and all lines before it. So the same input, also with
 * additional lines, is recognised up to its earlier end, and two inputs that only share a line do
 * not share its key. With a prefix, a key is the prefix and the line's number, for any content.
 */
export function lineKeys(prefix: string | undefined): (line: Line) => string {
  const seen = createHash("sha256");
  return ({ number, bytes }) => {
    if (prefix !== undefined) return `${prefix}:${number}`;
    seen.update(bytes ?? "").update("\n");
    return `cli:${number}:${seen.copy().digest("hex").slice(0, DIGEST_HEX)}`;
  };
}
