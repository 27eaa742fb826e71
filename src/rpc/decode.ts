import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { invalidArgument } from "../base/errors.ts";
import { formCheckOf } from "./wire-form.ts";

/**
 * Bytes of a caller to a message. Unknown fields are skipped, not kept: a request that a newer client
 * sends must work, and nothing here would send them on. Strings that are not UTF-8 are refused by
 * protobuf-es itself for proto3 (test/unit/rpc-decode.test.ts pins it).
 */
export function decoderOf<D extends DescMessage>(desc: D): (bytes: Uint8Array) => MessageShape<D> {
  const options = { readUnknownFields: false };
  const checkForm = formCheckOf(desc);
  return (bytes) => {
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
