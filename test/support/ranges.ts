/** Ranges of push streams, for tests. */
import type { NewRow, Push, StreamRange } from "../../src/store/rows.ts";
import { newPush, newRow } from "./ledger.ts";

export interface Numbers {
  readonly from: bigint;
  readonly to: bigint;
  readonly refused?: number;
}

type Stream = Pick<StreamRange, "epoch" | "stream">;

export function newRange({ epoch, stream }: Stream, numbers: Numbers): StreamRange {
  const { from: firstClientSeq, to: lastClientSeq, refused = 0 } = numbers;
  return { epoch, stream, firstClientSeq, lastClientSeq, refused };
}

/** By default with one row of as many events as the range has accepted numbers. */
export function rangePush(
  sessionId: string,
  stream: Stream,
  { rows, ...numbers }: Numbers & { readonly rows?: readonly NewRow[] },
): Push {
  const range = newRange(stream, numbers);
  const eventCount = Number(numbers.to - numbers.from) + 1 - range.refused;
  const merged = eventCount === 0 ? [] : [newRow({ eventCount })];
  return newPush(sessionId, { range, rows: rows ?? merged });
}
