import { destination, type Logger, pino, stdTimeFunctions } from "pino";
import prettyPrinter from "pino-pretty";

/** A record is an event with fields: `log.warn({ sessionId, err }, "row lost")`. */
export type Log = Logger;

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

export interface LogOptions {
  readonly level: LogLevel;
  /** For people at a terminal; else one JSON object a line. */
  readonly pretty: boolean;
  /** A command whose output is data logs to stderr. */
  readonly to: "stdout" | "stderr";
}

const MESSAGE_CHARS_MAX = 1_000;
const CAUSES_MAX = 4;

export function createLog(options: LogOptions): Log {
  const fd = options.to === "stdout" ? 1 : 2;
  // Sync, so that the log ends with its last record, and a reader that stalls holds the service up. The
  // other way costs as much, and hangs at the exit for good when the reader has gone (`… | head -1`):
  // sonic-boom 4.2 tries again after EPIPE.
  const stream = options.pretty
    ? prettyPrinter({ destination: fd, sync: true, translateTime: "SYS:HH:MM:ss.l" })
    : destination({ dest: fd, sync: true });
  return createLogTo(stream, options.level);
}

/** The same records to a stream of one's own, in JSON. */
export function createLogTo(
  stream: { write(line: string): unknown },
  level: LogLevel = "debug",
): Log {
  return pino(
    {
      level,
      base: null, // No pid, no host name: whoever collects the lines knows where from.
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: (error: unknown) => errorFields(error, CAUSES_MAX) },
    },
    stream,
  );
}

/**
 * An error for the log. Only what is named here: errors of database drivers carry the statement's
 * parameters as fields, and drizzle puts them in its message, behind "params:"; those are payloads.
 */
function errorFields(error: unknown, causesMax: number): object {
  if (!(error instanceof Error)) return { message: `thrown: ${typeof error}` };
  const code = "code" in error ? error.code : undefined;
  const frames = error.stack?.split("\n").filter((line) => line.startsWith("    at "));
  return {
    type: error.name,
    message: error.message.replace(/\nparams:.*/s, "").slice(0, MESSAGE_CHARS_MAX),
    ...(typeof code === "string" ? { code } : {}),
    stack: frames?.join("\n"),
    ...(error.cause === undefined || causesMax === 0
      ? {}
      : { cause: errorFields(error.cause, causesMax - 1) }),
  };
}
