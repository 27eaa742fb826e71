/**
 * What h2load's --log-file says: a line a request, with the microsecond it was sent at, the HTTP
 * status (-1: the stream failed), and the microseconds until its answer was complete. One file a
 * process.
 *
 * Processes do not begin at the same moment, and end as they began. The rate is taken from the time
 * in which all were at work; only where that is less than half of the run, from the whole run.
 */
export interface LoadLog {
  /** Requests that got HTTP 200. A gRPC call that was refused has that too. */
  readonly answered: number;
  readonly otherwise: number;
  readonly answeredPerSecond: number;
  /** From the first request sent to the last answer. */
  readonly seconds: number;
  /** How much of it all processes were at work. */
  readonly together: number;
  readonly tookMs: readonly number[];
}

const TOGETHER_MIN = 0.5;

interface Span {
  readonly beganMicros: number;
  readonly endedMicros: number;
}

interface Answer extends Span {
  readonly httpStatus: number;
}

export function readLoadLog(texts: readonly string[]): LoadLog {
  const files = texts.map(answersIn);
  const all = files.flat();
  const answered = all.filter(({ httpStatus }) => httpStatus === 200);
  const spans = files.filter((answers) => answers.length > 0).map(spanOf);
  const whole = spanOf(spans);
  const shared = {
    beganMicros: largest(spans.map(({ beganMicros }) => beganMicros)),
    endedMicros: smallest(spans.map(({ endedMicros }) => endedMicros)),
  };
  const together = Math.max(0, lengthOf(shared)) / lengthOf(whole);
  const counted = together < TOGETHER_MIN ? whole : shared;
  const inside = answered.filter(
    ({ endedMicros }) => endedMicros > counted.beganMicros && endedMicros <= counted.endedMicros,
  );
  return {
    answered: answered.length,
    otherwise: all.length - answered.length,
    answeredPerSecond: (inside.length * 1_000_000) / lengthOf(counted),
    seconds: lengthOf(whole) / 1_000_000,
    together,
    tookMs: answered.map((answer) => lengthOf(answer) / 1_000),
  };
}

function answersIn(text: string): readonly Answer[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [beganMicros = Number.NaN, httpStatus = -1, tookMicros = Number.NaN] = line
        .split("\t")
        .map(Number);
      return { beganMicros, httpStatus, endedMicros: beganMicros + tookMicros };
    });
}

function spanOf(spans: readonly Span[]): Span {
  return {
    beganMicros: smallest(spans.map(({ beganMicros }) => beganMicros)),
    endedMicros: largest(spans.map(({ endedMicros }) => endedMicros)),
  };
}

function lengthOf({ beganMicros, endedMicros }: Span): number {
  return endedMicros - beganMicros;
}

// A log has more lines than a call may have arguments, so not Math.min(...values).

function smallest(values: readonly number[]): number {
  return values.reduce((least, value) => Math.min(least, value), Number.POSITIVE_INFINITY);
}

function largest(values: readonly number[]): number {
  return values.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
}
