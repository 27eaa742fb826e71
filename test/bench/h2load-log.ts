/**
 * What h2load's --log-file says: a line a request, with the microsecond it was sent at, the HTTP
 * status (-1: the stream failed), and the microseconds until its answer was complete.
 */
export interface LoadLog {
  /** Requests that got HTTP 200. A gRPC call that was refused has that too. */
  readonly answered: number;
  readonly otherwise: number;
  /** From the first request sent to the last answer, over all files. */
  readonly seconds: number;
  readonly tookMs: readonly number[];
}

export function readLoadLog(texts: readonly string[]): LoadLog {
  let otherwise = 0;
  let beganMicros = Number.POSITIVE_INFINITY;
  let endedMicros = 0;
  const tookMs: number[] = [];
  for (const text of texts) {
    for (const line of text.split("\n")) {
      if (line === "") continue;
      const [sentMicros = Number.NaN, httpStatus, tookMicros = Number.NaN] = line
        .split("\t")
        .map(Number);
      if (httpStatus !== 200) {
        otherwise += 1;
        continue;
      }
      tookMs.push(tookMicros / 1_000);
      beganMicros = Math.min(beganMicros, sentMicros);
      endedMicros = Math.max(endedMicros, sentMicros + tookMicros);
    }
  }
  const seconds = tookMs.length === 0 ? 0 : (endedMicros - beganMicros) / 1_000_000;
  return { answered: tookMs.length, otherwise, seconds, tookMs };
}
