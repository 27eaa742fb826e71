/** The rows that a fold reads, and a fold up to a past event. */
import { setImmediate as turnOfEventLoop } from "node:timers/promises";
import { expand } from "@session-ledger/compressor/expand";
import type { StoreReader } from "../store/reader.ts";
import type { Fold } from "./fold.ts";
import { lastNumberOf, rowsAfter, type RowsLimits } from "./folding.ts";
import { type Cut, inOrder } from "./merging.ts";

export type FoldReader = Pick<
  StoreReader,
  "pageAfter" | "transcriptRowsAfter" | "transcriptMessagesAfter"
>;

interface RowsForRequest {
  readonly sessionId: string;
  readonly fold: Pick<Fold, "cut" | "needsAllMessages">;
  readonly upTo: Cut;
}

/** The rows after the fold, of both streams in one order. */
export function rowsFor(
  reader: FoldReader,
  { sessionId, fold, upTo }: RowsForRequest,
  limits: RowsLimits,
): ReturnType<typeof inOrder> {
  const { events, messages } = fold.cut;
  return inOrder({
    events: rowsAfter(
      (page) => reader.transcriptRowsAfter(page),
      { sessionId, after: events, wanted: () => upTo.events },
      limits,
    ),
    messages: rowsAfter(
      (page) => reader.transcriptMessagesAfter({ ...page, isWhole: fold.needsAllMessages }),
      { sessionId, after: messages, wanted: () => upTo.messages },
      limits,
    ),
    upTo,
  });
}

interface FoldAtParts {
  readonly reader: FoldReader;
  readonly limits: RowsLimits;
  /** Called with the count of rows just folded; throws when the fold must not go on. */
  readonly onFolded: (rows: number) => void;
}

interface FoldAtRequest {
  readonly fold: Fold;
  readonly sessionId: string;
  readonly upToSeq: bigint;
  readonly head: Cut;
}

/** Folds up to an event, and the messages before the next one. */
export async function foldAt(parts: FoldAtParts, request: FoldAtRequest): Promise<void> {
  const { fold, sessionId, upToSeq, head } = request;
  const { reader, limits, onFolded } = parts;
  const upTo = { ...head, events: upToSeq < head.events ? upToSeq + 1n : upToSeq };
  for await (const { rows } of rowsFor(reader, { sessionId, fold, upTo }, limits)) {
    onFolded(0);
    for (const row of rows) {
      if (row.stream === "events" && lastNumberOf(row) > upToSeq) {
        if (row.seq <= upToSeq) await foldPart(parts, { ...request, seq: row.seq });
        fold.skipTo({ events: upToSeq, messages: 0n });
        fold.leaveOutBranches();
        return;
      }
      fold.take(row);
      onFolded(1);
    }
  }
  fold.skipTo({ events: upToSeq, messages: head.messages });
}

/** Adds the first events of a merged row, which may have very many. */
async function foldPart(
  { reader, limits, onFolded }: FoldAtParts,
  { fold, sessionId, upToSeq, seq }: FoldAtRequest & { readonly seq: bigint },
): Promise<void> {
  const one = { rowsMax: 1, bytesMax: limits.pageBytesMax };
  const [row] = await reader.pageAfter({ stream: "events", sessionId, after: seq - 1n, ...one });
  if (row === undefined) return; // Erased meanwhile.
  let count = 0;
  for (const raw of expand(row)) {
    if (raw.seq > upToSeq) return;
    fold.addEvent(raw, row.conformant);
    count += 1;
    if (count % limits.sliceRowsMax !== 0) continue;
    await turnOfEventLoop();
    onFolded(0);
  }
}
