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

/**
 * Fast readers of the ordinary encoding, for messages that arrive by the hundred thousand per
 * second.
 */
const PLAIN_READERS: ReadonlyMap<string, (bytes: Uint8Array) => Message | undefined> = new Map([
  [PushSessionEventsRequestSchema.typeName, readBatchFrame],
]);

/**
 * Decodes a caller's bytes to a message. Unknown fields are skipped and not kept: a request from a
 * newer client must work, and no code here would send the fields on. protobuf-es itself refuses
 * strings that are not UTF-8 for proto3 (test/unit/rpc-decode.test.ts pins it).
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
      // The decoder's message names lengths and tags, and never content; its stack is useless.
      const why = cause instanceof Error ? cause.message : "broken";
      const description = `the request is not a valid ${desc.typeName} message: ${why}`;
      throw invalidArgument([{ field: "", description }]);
    }
  };
}
