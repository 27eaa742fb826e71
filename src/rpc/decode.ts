import {
  type DescMessage,
  fromBinary,
  isMessage,
  type Message,
  type MessageShape,
} from "@bufbuild/protobuf";
import { PushSessionEventsRequestSchema } from "../../gen/ambient/v1/event_stream_pb.ts";
import { invalidArgument } from "../base/errors.ts";
import { readBatchFrame } from "./batch-frame.ts";
import { formCheckOf } from "./wire-form.ts";

/** For what comes by the hundred thousand a second: readers of the ordinary encoding of one message. */
const PLAIN_READERS: ReadonlyMap<string, (bytes: Uint8Array) => Message | undefined> = new Map([
  [PushSessionEventsRequestSchema.typeName, readBatchFrame],
]);

/**
 * Bytes of a caller to a message. Unknown fields are skipped, not kept: a request that a newer client
 * sends must work, and nothing here would send them on. Strings that are not UTF-8 are refused by
 * protobuf-es itself for proto3 (test/unit/rpc-decode.test.ts pins it).
 */
export function decoderOf<D extends DescMessage>(desc: D): (bytes: Uint8Array) => MessageShape<D> {
  const options = { readUnknownFields: false };
  const checkForm = formCheckOf(desc);
  const readPlain = PLAIN_READERS.get(desc.typeName);
  return (bytes) => {
    const plain = readPlain?.(bytes);
    if (isMessage(plain, desc)) return plain;
    try {
      checkForm(bytes);
      return fromBinary(desc, bytes, options);
    } catch (cause) {
      // What the decoder says is about lengths and tags, never about content; its stack is of no use.
      const why = cause instanceof Error ? cause.message : "broken";
      const description = `the request is not a valid ${desc.typeName} message: ${why}`;
      throw invalidArgument([{ field: "", description }]);
    }
  };
}
