/**
 * Merges the events of an import as a push stream does. A row has the key of its first event, so
 * the same file makes the same rows. A refused row is sent again as its events (push-rows.ts), each
 * with its key. The fragments at the end of an input are not merged: a longer file may continue the
 * text.
 */
import { fromBinary } from "@bufbuild/protobuf";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import { type CompressedRow, Compressor } from "@session-ledger/compressor/compressor";
import { encodeFragments } from "@session-ledger/compressor/fragments";
import type { RowToPush } from "./push-rows.ts";

interface Event {
  readonly eventType: string;
  readonly payload: string;
  readonly createdAtMicros: bigint;
}

export async function* mergedRows(
  rows: AsyncIterable<RowToPush>,
): AsyncGenerator<RowToPush, void, undefined> {
  const compressor = new Compressor<Event>();
  let open: RowToPush[] = [];
  const take = (made: CompressedRow<Event>): RowToPush | undefined => {
    const parts = open.splice(0, made.eventCount);
    return parts.length < 2 ? parts[0] : merged(made, parts);
  };
  for await (const row of rows) {
    if (row.read.kind === "empty") continue;
    if (row.read.kind === "refused") {
      const last = compressor.flush();
      const before = last && take(last);
      if (before !== undefined) yield before;
      yield row;
      continue;
    }
    const { eventType, payload } = row.read;
    open.push(row);
    const event = { eventType, payload, createdAtMicros: 0n };
    // The time of an import is unrelated to the text, so no row is closed by its age.
    for (const made of compressor.push(event, 0)) {
      const next = take(made);
      if (next !== undefined) yield next;
    }
  }
  yield* open;
}

function merged(
  { eventType, payload, eventCount, fragments }: CompressedRow<Event>,
  parts: readonly RowToPush[],
): RowToPush {
  const [first] = parts;
  const last = parts.at(-1);
  if (first === undefined || last === undefined || fragments === undefined)
    throw new Error("a merged row has no events");
  return {
    ...last,
    key: first.key,
    read: {
      kind: "row",
      eventType,
      payload,
      eventCount,
      fragments: fromBinary(FragmentsSchema, encodeFragments(fragments)),
    },
    parts,
  };
}
