import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, expect, test } from "vitest";
import { createLogTo, type Log } from "../../src/observability/log.ts";

function newLog(): { readonly log: Log; readonly lines: string[] } {
  const lines: string[] = [];
  return { log: createLogTo({ write: (line) => lines.push(line) }, "info"), lines };
}

function recordOf(log: (log: Log) => void): Record<string, unknown> {
  const { log: target, lines } = newLog();
  log(target);
  expect(lines).toHaveLength(1);
  return JSON.parse(lines[0] ?? "");
}

describe("a log record", () => {
  test("is one line of JSON with the level by name and an ISO time", () => {
    const record = recordOf((log) => log.warn({ sessionId: "s\n1" }, "row lost"));
    expect(record).toEqual({
      level: "warn",
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      sessionId: "s\n1",
      msg: "row lost",
    });
  });

  test("is not written below the log level", () => {
    const { log, lines } = newLog();
    log.debug("quiet");
    expect(lines).toEqual([]);
  });

  test("has the type, message, code, stack and causes of an error", () => {
    const cause = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
    const { err } = recordOf((log) => log.error({ err: new TypeError("broken", { cause }) }, "x"));
    expect(err).toMatchObject({
      type: "TypeError",
      message: "broken",
      stack: expect.stringMatching(/^ {4}at .*observability-log\.test\.ts/s),
      cause: { code: "ECONNREFUSED", message: "connect ECONNREFUSED" },
    });
  });

  test("does not have the details of a database driver's error, as they hold payloads", () => {
    const driver = Object.assign(new Error("duplicate key"), {
      code: "23505",
      detail: "Key (payload)=(secret) already exists.",
      query: "insert into t values ($1)",
      parameters: ["secret"],
    });
    const drizzle = new Error("Failed query: insert into t values ($1)\nparams: secret,\nsecret", {
      cause: driver,
    });
    const { err } = recordOf((log) => log.error({ err: drizzle }, "x"));
    expect(JSON.stringify(err)).not.toContain("secret");
    expect(err).toMatchObject({
      message: "Failed query: insert into t values ($1)",
      cause: { code: "23505", message: "duplicate key" },
    });
  });

  test("has a limited chain of causes, also when it is circular", () => {
    const error = new Error("round");
    error.cause = error;
    const { err } = recordOf((log) => log.error({ err: error }, "x"));
    expect(JSON.stringify(err).match(/"round"/g)).toHaveLength(5);
  });

  test("has only the type of a thrown value that is not an error", () => {
    const { err } = recordOf((log) => log.error({ err: "secret" }, "x"));
    expect(err).toEqual({ message: "thrown: string" });
  });

  test("has a limited length of message", () => {
    const { err } = recordOf((log) => log.error({ err: new Error("m".repeat(50_000)) }, "x"));
    expect(err).toMatchObject({ message: "m".repeat(1_000) });
  });
});

/**
 * Bug: the other mode of sonic-boom never ended here, so a stop of the service hung at its last
 * line.
 */
test.each([true, false])("a closed reader does not delay the exit, pretty: %s", async (pretty) => {
  const module = new URL("../../src/observability/log.ts", import.meta.url).href;
  const script = `
    import { createLog } from ${JSON.stringify(module)};
    const log = createLog({ level: "info", pretty: ${pretty}, to: "stdout" });
    for (let n = 0; n < 20_000; n += 1) log.info({ n }, "event");
    process.exit(7);
  `;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", script], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  const ended = once(child, "close");
  await once(child.stdout, "data");
  child.stdout.destroy();
  expect((await ended)[0]).toBe(7);
});
