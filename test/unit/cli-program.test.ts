/** The arguments and the environment of the command line, as far as no service is needed. */
import { execFileSync } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { describe, expect, test } from "vitest";
import { type CliIo, exitHelp } from "../../src/cli/io.ts";
import { importUpstream } from "../../tools/import-upstream/command.ts";
import { runCli } from "../../src/cli/program.ts";
import { startedLines } from "../../src/cli/serve.ts";
import { type Config, configHelp, loadClientConfig, loadConfig } from "../../src/config/config.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { needs, toolPath } from "../support/tools.ts";

type Environment = NonNullable<Parameters<typeof loadConfig>[0]>;

class Captured extends Writable {
  text = "";
  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

interface Setup extends Partial<Pick<CliIo, "serve" | "migrate" | "retention" | "stdout">> {
  readonly environment?: Environment;
  readonly isTerminal?: boolean;
}

async function run(argv: readonly string[], setup: Setup = {}) {
  const { environment = {}, isTerminal = false } = setup;
  const [stdout, stderr] = [new Captured(), new Captured()];
  const io: CliIo = {
    stdin: Object.assign(Readable.from([]), { isTTY: isTerminal }),
    stdout: setup.stdout ?? stdout,
    stderr,
    signal: new AbortController().signal,
    loadConfig: () => loadConfig(environment),
    loadClientConfig: () => loadClientConfig(environment),
    serve: setup.serve ?? (() => Promise.reject(new Error("not to be called"))),
    migrate: setup.migrate ?? (() => Promise.reject(new Error("not to be called"))),
    retention: setup.retention ?? (() => Promise.reject(new Error("not to be called"))),
    importUpstream: (rest) => importUpstream(rest, io),
  };
  const exitCode = await runCli(argv, io);
  return { exitCode, stdout: stdout.text, stderr: stderr.text };
}

describe("help", () => {
  // Bug: the help was more than 200 lines, most of them settings.
  test("regression: fits on one screen", async () => {
    const { exitCode, stdout } = await run(["--help"]);
    expect(exitCode).toBe(0);
    const lines = stdout.trimEnd().split("\n");
    expect(lines.length).toBeLessThanOrEqual(46);
    expect(lines.filter((line) => line.length > 80)).toEqual([]);
    expect(stdout).toContain("session-ledger help environment");
  });

  test.each([[["help", "environment"]], [["environment", "--help"]]])(
    "shows the settings on a page of their own for %j",
    async (argv) => {
      const { exitCode, stdout } = await run(argv);
      expect(exitCode).toBe(0);
      expect(stdout).toContain(configHelp());
    },
  );

  test.each([
    "push",
    "tail",
    "feed",
    "export",
    "transcript",
    "runs",
    "sessions",
    "erase",
    "retention",
    "dump",
    "restore",
    "backup",
    "verify",
    "digest",
    "import",
    "migrate",
  ])("of %s shows the exit codes", async (command) => {
    const { exitCode, stdout } = await run([command, "--help"]);
    expect(exitCode).toBe(0);
    expect(stdout).toContain(exitHelp());
  });
});

describe("completion", () => {
  /** The commands of the help, with their options. */
  async function commands(): Promise<ReadonlyMap<string, readonly string[]>> {
    const { stdout } = await run(["--help"]);
    const [, list = ""] = stdout.split("Commands:\n");
    const names = [...list.matchAll(/^ {2}(\w+) /gm)].map(([, name = ""]) => name);
    const optionsOf = async (name: string) => {
      const { stdout: help } = await run([name, "--help"]);
      return [...help.matchAll(/^ +(?:-\w, )?--([\w-]+)/gm)].map(([, option = ""]) => option);
    };
    const own = names.filter((name) => name !== "import" && name !== "help");
    return new Map(
      await Promise.all(own.map(async (name) => [name, await optionsOf(name)] as const)),
    );
  }

  test("of bash has every command and option", async () => {
    const { exitCode, stdout } = await run(["completion", "bash"]);
    expect(exitCode).toBe(0);
    const known = await commands();
    expect(known.size).toBeGreaterThan(14);
    for (const [name, options] of known) {
      for (const option of options) {
        const line = stdout
          .split("\n")
          .find((text) => text.startsWith(`    "${name}") `) && text.includes(`--${option}`));
        expect(line, `${name} --${option}`).toBeDefined();
      }
    }
    expect(stdout).not.toContain("environment)");
  });

  test.each([
    [["ta"], ["tail"]],
    [
      ["migrate", ""],
      ["up", "down", "status", "help"],
    ],
    [["migrate", "down", "--f"], ["--force"]],
    [
      ["tail", "s1", "--stream", ""],
      ["events", "messages"],
    ],
    [["sessions", "-o", "w"], ["wide"]],
    [["completion", ""], ["bash"]],
    // Files.
    [["push", "s1", "--file", ""], []],
    // A session with the name of a command.
    [["tail", "push", "--exp"], ["--expand"]],
  ])("bash offers for %j the words %j", needs("bash"), async (words, expected) => {
    const { stdout } = await run(["completion", "bash"]);
    const line = `COMP_WORDS=(session-ledger ${words.map((word) => `'${word}'`).join(" ")})`;
    const end = `COMP_CWORD=${words.length}; _session_ledger; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const said = execFileSync(toolPath("bash"), ["-c", `${stdout}\n${line}; ${end}`], {
      encoding: "utf8",
    });
    expect(said.split("\n").filter((word) => word !== "")).toEqual(expected);
  });
});

describe("the start of the service", () => {
  const started = { grpc: "127.0.0.1:9000", http: "127.0.0.1:8000", ops: "127.0.0.1:8083" };
  function lines(environment: Environment, grpc = started.grpc): readonly string[] {
    const loaded = loadConfig(environment);
    if (!loaded.ok) throw new Error(loaded.problems.join());
    return startedLines({ ...started, grpc, data: "/srv/.data (new)" }, loaded.config);
  }

  // Bug: 73 lines were printed, 52 of them settings with their defaults.
  test("regression: prints five lines, and no settings with their defaults", () => {
    expect(lines({})).toEqual([
      "page      http://127.0.0.1:8000  (for everybody on this machine, without a token)",
      "gRPC      127.0.0.1:9000",
      "HTTP      http://127.0.0.1:8000/openapi.json  (metrics: http://127.0.0.1:8083/metrics)",
      "data      /srv/.data (new)",
      "demo      npm run -s ledger -- demo",
    ]);
  });

  test("prints the command of the demo with the options that it needs", () => {
    const demo = (grpc: string, environment: Environment = {}): string | undefined =>
      lines(environment, grpc).find((line) => line.startsWith("demo"));
    expect(demo("0.0.0.0:9000")).toBe("demo      npm run -s ledger -- demo");
    expect(demo("[::]:9001")).toBe("demo      npm run -s ledger -- demo --address 127.0.0.1:9001");
    expect(
      demo("127.0.0.1:9000", {
        AUTH_TOKENS: '[{"id":"a","token":"12345678901234567890123456789012","roles":["admin"]}]',
      }),
    ).toBe("demo      npm run -s ledger -- demo --token-file FILE");
  });

  test("reports that the page is off", () => {
    expect(lines({ INSPECTOR: "off" })[0]).toMatch(/^page {6}none: INSPECTOR=off/);
  });

  test("prints the settings that differ, without a password", () => {
    const said = lines({ LOG_LEVEL: "debug", DATABASE_URL: "postgres://me:hunter2@db/ledger" });
    expect(said.at(-1)).toBe("settings  DATABASE_URL=postgres://db/ledger LOG_LEVEL=debug");
  });

  test("prints its failure as JSON, and on a terminal as a line", async () => {
    const environment = { LOG_LEVEL: "loud" };
    const { exitCode, stderr } = await run(["serve"], { environment });
    expect(exitCode).toBe(2);
    expect(JSON.parse(stderr)).toMatchObject({
      level: "fatal",
      msg: expect.stringContaining("LOG_LEVEL: expected"),
    });
    const stdout = Object.assign(new Captured(), { isTTY: true });
    const shown = await run(["serve"], { environment, stdout });
    expect(shown.stderr).toMatch(/^session-ledger: LOG_LEVEL: expected/);
  });
});

test("a closed pipe is not a failure", async () => {
  const gone = new Writable({
    write: (_chunk, _encoding, done) => done(Object.assign(new Error("EPIPE"), { code: "EPIPE" })),
  });
  const { exitCode } = await run(["--help"], { stdout: gone });
  await new Promise(setImmediate); // A stream reports its failure in a later turn.
  expect(exitCode).toBe(0);
});

test("version prints the version, as --version does", async () => {
  const { exitCode, stdout } = await run(["version"]);
  expect(exitCode).toBe(0);
  expect(stdout).toMatch(/^\d+\.\d+\.\d+\S*\n$/);
  expect((await run(["--version"])).stdout).toBe(stdout);
});

describe("a wrong command line does nothing and ends with exit code 2", () => {
  test.each([
    ["no such command", ["start"], "unknown command 'start'"],
    ["an unknown option", ["serve", "--port", "1"], "unknown option '--port'"],
    ["push without a session", ["push"], "--session"],
    ["tail without a session", ["tail"], "--session"],
    ["tail of a session that is named twice", ["tail", "a", "-s", "a"], "and not both"],
    ["a second session", ["tail", "a", "b"], "too many arguments"],
    ["a token file that is missing", ["sessions", "--token-file", "/no/file"], "--token-file"],
    ["an empty token file", ["sessions", "--token-file", "/dev/null"], "--token-file: expected"],
    ["a CA file that is missing", ["sessions", "--ca-file", "/no/file"], "--ca-file"],
    ["create without a name", ["create"], "name"],
    ["a label without a value", ["create", "a", "--label", "team"], "Expected key=value."],
    ["a label that is given twice", ["create", "a", "--label", "a=1", "--label", "a="], "twice"],
    ["say without a text", ["say", "a"], "text"],
    ["say of an empty text", ["say", "a", ""], "text: expected a message that is not empty"],
    ["say of an empty stdin", ["say", "a", "-"], "text: expected a message that is not empty"],
    ["an unknown shell", ["completion", "zsh"], "Allowed choices are bash."],
    ["a format that import does not have", ["import", "--format", "vercelai", "f"], "lc4j, spring"],
    ["no such command as describe", ["describe", "a"], "unknown command 'describe'"],
    ["no such command as report", ["report"], "unknown command 'report'"],
    ["a session with a filter", ["sessions", "a", "--running"], "session: expected no filter"],
    ["a session with an order", ["sessions", "a", "--order", "activity"], "session: expected no"],
    ["an unknown output", ["sessions", "-o", "xml"], "--output"],
    ["two outputs", ["sessions", "a", "--json", "-o", "wide"], "--json"],
    ["a cursor below zero", ["tail", "-s", "a", "--after", "-1"], "--after"],
    ["a cursor above 64 bits", ["tail", "-s", "a", "--after", "9223372036854775808"], "--after"],
    ["a limit of zero", ["tail", "-s", "a", "--limit", "0"], "--limit"],
    ["an unknown format", ["tail", "-s", "a", "--format", "xml"], "--format"],
    ["an unknown stream", ["tail", "-s", "a", "--stream", "logs"], "--stream"],
    ["raw events of messages", ["tail", "-s", "a", "--stream", "messages", "--expand"], "--expand"],
    ["export without a session", ["export"], "session"],
    ["export of an unknown stream", ["export", "a", "--stream", "logs"], "--stream"],
    ["export into a folder", ["export", "a", "-o", "/"], "it is not a file"],
    ["export over a device", ["export", "a", "-o", "/dev/null", "--force"], "it is not a file"],
    ["export into no folder", ["export", "a", "-o", "/no/such/folder/a"], "/no/such/folder/a"],
    ["export over a file", ["export", "a", "-o", import.meta.filename], "--force replaces it"],
    ["a duration without a unit", ["sessions", "--retry-for", "60"], "--retry-for"],
    ["an address without a port", ["sessions", "--address", "localhost"], "--address"],
    ["a missing file", ["push", "-s", "a", "-f", "/no/such/file"], "/no/such/file"],
    ["a file that is a directory", ["push", "-s", "a", "-f", "/"], "directory"],
  ])("for %s", async (_, argv, message) => {
    const { exitCode, stdout, stderr } = await run(argv);
    expect(exitCode).toBe(2);
    expect(stderr).toContain(message);
    expect(stdout).toBe("");
  });

  test("for a wrong address of a client", async () => {
    const environment = { SESSION_LEDGER_ADDRESS: "nowhere" };
    const { exitCode, stderr } = await run(["sessions"], { environment });
    expect(exitCode).toBe(2);
    expect(stderr).toContain("SESSION_LEDGER_ADDRESS: expected host:port");
  });
});

describe("serve", () => {
  test.each([[["serve"]], [[]]])("starts for %j with the configuration", async (argv) => {
    const seen: Config[] = [];
    const { exitCode } = await run(argv, {
      environment: { WATCHERS_MAX: "700" },
      serve: (config) => {
        seen.push(config);
        return Promise.resolve(0);
      },
    });
    expect(exitCode).toBe(0);
    expect(seen).toMatchObject([{ watchersMax: 700 }]);
  });

  test("warns about a variable that is probably misspelled, and starts", async () => {
    const { exitCode, stderr } = await run([], {
      environment: { LOG_LEVLE: "debug" },
      serve: () => Promise.resolve(0),
    });
    expect(exitCode).toBe(0);
    expect(stderr).toContain("LOG_LEVLE is no setting; did you mean LOG_LEVEL?");
  });

  test.each([
    [new ServiceError("failed_precondition", "INVALID_REQUEST", "the port is in use"), 4],
    [new ServiceError("unavailable", "DATABASE_UNAVAILABLE", "no database"), 3],
    [new ServiceError("invalid_argument", "INVALID_REQUEST", "AUTH_TOKENS: expected JSON"), 2],
    [new TypeError("a defect", { cause: new Error("what is behind it") }), 5],
  ])("ends after %s with exit code %i", async (failure, code) => {
    const { exitCode, stderr } = await run([], { serve: () => Promise.reject(failure) });
    expect(exitCode).toBe(code);
    expect(stderr).toContain(failure.message);
    expect(stderr.includes("what is behind it")).toBe(failure.cause !== undefined);
  });
});

describe("migrate", () => {
  const upToDate = { applied: ["0000_a", "0001_b"], pending: [], unknown: 0 };
  const behind = { applied: ["0000_a"], pending: ["0001_b"], unknown: 0 };
  const ahead = { applied: ["0000_a", "0001_b"], pending: [], unknown: 1 };

  test.each([
    ["up", upToDate, 0, "applied 0000_a\napplied 0001_b\n"],
    ["status", upToDate, 0, "applied 0000_a\napplied 0001_b\n"],
    ["status", behind, 1, "applied 0000_a\npending 0001_b\n"],
    ["status", ahead, 1, "applied 0000_a\napplied 0001_b\n"],
    ["down", behind, 0, "applied 0000_a\npending 0001_b\n"],
  ] as const)("%s of %j ends with %i", async (command, status, code, printed) => {
    const asked: string[] = [];
    const yes = command === "down" ? ["--yes"] : [];
    const { exitCode, stdout } = await run(["migrate", command, ...yes], {
      migrate: (which) => {
        asked.push(which);
        return Promise.resolve(status);
      },
    });
    expect(asked).toEqual([command]);
    expect(exitCode).toBe(code);
    expect(stdout).toBe(printed);
  });

  // Bug: without a terminal there was no question, so `migrate down </dev/null` dropped every
  // table.
  test.each([true, false])(
    "down without --yes drops nothing, on a terminal (%s) or not",
    async (isTerminal) => {
      const refused = await run(["migrate", "down"], { isTerminal });
      expect(refused.exitCode).toBe(2);
      expect(refused.stderr).toContain("--yes");
      const asked: unknown[] = [];
      const migrate: CliIo["migrate"] = (...request) => {
        asked.push(request.slice(0, 2));
        return Promise.resolve(behind);
      };
      for (const force of [[], ["--force"]]) {
        const done = await run(["migrate", "down", "--yes", ...force], { isTerminal, migrate });
        expect(done.exitCode).toBe(0);
      }
      expect(asked).toEqual([
        ["down", { force: false }],
        ["down", { force: true }],
      ]);
    },
  );
});

describe("retention", () => {
  const summary = {
    sessions: 3,
    sessionsErased: 1,
    sessionsBusy: 0,
    messages: 2,
    events: 5,
    payloadBytes: 70,
  };
  const erasing = (given: Partial<typeof summary> = {}) => ({
    retention: () => Promise.resolve({ ...summary, ...given }),
  });

  test("reports the erased rows to a person and to a program", async () => {
    const args = ["retention", "--older-than", "30d"];
    expect((await run(args, erasing())).stdout).toBe(
      "erased 5 events and 2 messages (70 payload bytes) of 1 of 3 sessions\n",
    );
    expect((await run([...args, "--dry-run"], erasing())).stdout).toMatch(/^would erase 5 events/);
    const json = await run([...args, "--json"], erasing());
    expect(JSON.parse(json.stdout)).toEqual({ ...summary, dryRun: false });
  });

  test("names its session by the argument or by --session", async () => {
    const asked: unknown[] = [];
    const retention: CliIo["retention"] = (options) => {
      asked.push(options.sessionId);
      return Promise.resolve(summary);
    };
    for (const named of [["a"], ["--session", "a"], []]) {
      await run(["retention", "--older-than", "30d", ...named], { retention });
    }
    expect(asked).toEqual(["a", "a", undefined]);
  });

  test("leaves locked sessions, and ends with exit code 1", async () => {
    const args = ["retention", "--older-than", "30d"];
    const { exitCode, stderr } = await run(args, erasing({ sessionsBusy: 2 }));
    expect(exitCode).toBe(1);
    expect(stderr).toContain("2 sessions were locked");
  });

  test.each([
    ["30d", 30 * 86_400_000],
    ["720h", 720 * 3_600_000],
    ["90m", 90 * 60_000],
  ])("accepts the age %s", async (age, afterMs) => {
    let asked = 0;
    const retention: CliIo["retention"] = (options) => {
      asked = options.afterMs;
      return Promise.resolve(summary);
    };
    await run(["retention", "--older-than", age], { retention });
    expect(asked).toBe(afterMs);
  });

  test.each(["", "0d", "30", "30s", "-1d", "4000d", "1.5d"])("refuses the age %j", async (age) => {
    expect((await run(["retention", `--older-than=${age}`])).exitCode).toBe(2);
  });
});

test("erase requires a confirmation, and import does not repeat an invalid URL", async () => {
  const erased = await run(["erase", "s"]);
  expect(erased).toMatchObject({ exitCode: 2, stdout: "" });
  expect(erased.stderr).toContain("--yes");
  const imported = await run(["import", "--from", "http://u:secret@h/d"]);
  expect(imported).toMatchObject({ exitCode: 2, stdout: "" });
  expect(imported.stderr).not.toContain("secret");
});

test("a refused configuration suggests the name of a misspelled variable", async () => {
  const environment = { GRPC_ADDRESS: "0.0.0.0:9000", AUTH_TOKEN_FILE: "/tokens.json" };
  const { exitCode, stderr } = await run(["serve"], { environment });
  expect(exitCode).toBe(2);
  expect(stderr).toContain("did you mean AUTH_TOKENS_FILE?");
  expect(stderr).toContain("GRPC_ADDRESS: expected");
});
