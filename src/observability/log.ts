import { destination, type Logger, pino, stdTimeFunctions } from "pino";
import prettyPrinter from "pino-pretty";

/** A record is an event with fields: `log.warn({ sessionId, err }, "row lost")`. */
export type Log = Logger;

type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

interface LogOptions {
  readonly level: LogLevel;
  /** True: lines for people at a terminal; else one JSON object per line. */
  readonly pretty: boolean;
  /** A command whose output is data logs to stderr; a stream is for JSON. */
  readonly to: "stdout" | "stderr" | { write(line: string): unknown };
  /** While it returns true, lines of the level info are not shown. Only for pretty lines. */
  readonly isQuiet?: () => boolean;
}

const MESSAGE_CHARS_MAX = 1_000;

export function createLog(options: LogOptions): Log {
  if (typeof options.to === "object") return createLogTo(options.to, options.level);
  const fd = options.to === "stdout" ? 1 : 2;
  // Synchronous, so that the log is complete at the exit. The asynchronous way costs as much, and
  // hangs when the reader has gone (`… | head -1`): sonic-boom 4.2 tries again after EPIPE.
  if (!options.pretty) return createLogTo(destination({ dest: fd, sync: true }), options.level);
  const printer = prettyPrinter({ destination: fd, sync: true, translateTime: "SYS:HH:MM:ss.l" });
  const write = (line: string): void => {
    if (options.isQuiet?.() && line.startsWith('{"level":"info"')) return;
    printer.write(line);
  };
  return createLogTo({ write }, options.level);
}

/** Writes the same records to a given stream, in JSON. */
export function createLogTo(
  stream: { write(line: string): unknown },
  level: LogLevel = "debug",
): Log {
  return pino(
    {
      level,
      base: null, // No pid and no host name: the collector of the lines adds their origin.
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: (error: unknown) => errorFields(error) },
    },
    stream,
  );
}

/**
 * Copies only named fields of an error. Drivers put a statement's parameters in fields, and drizzle
 * in its message after "params:"; those are payloads.
 */
function errorFields(error: unknown, causesMax = 4): object {
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
