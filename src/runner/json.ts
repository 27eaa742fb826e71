/**
 * Protobuf's own JSON mapping, on one line: 64-bit numbers are strings, times RFC 3339 with the
 * microseconds of the record, and a field without a value is left out.
 */
import { toJson, toJsonString } from "@bufbuild/protobuf";
import { type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { SessionEventSchema } from "../../gen/ambient/v1/events_pb.ts";
import { SessionMessageSchema } from "../../gen/ambient/v1/messages_pb.ts";
import { type Session, SessionSchema } from "../../gen/ambient/v1/sessions_pb.ts";
import { isEvent, type LedgerRow } from "./rows.ts";

export function rowJson(row: LedgerRow): string {
  return isEvent(row)
    ? toJsonString(SessionEventSchema, row)
    : toJsonString(SessionMessageSchema, row);
}

export function sessionJson(session: Session): string {
  return toJsonString(SessionSchema, session);
}

export function timeText(time: Timestamp | undefined): string {
  return time === undefined ? "" : toJson(TimestampSchema, time);
}
