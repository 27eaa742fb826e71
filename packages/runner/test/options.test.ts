/**
 * An invalid option gives a typed error that names it, before any work begins. Methods that may be
 * called from inside an agent's run count the fault instead, and never throw.
 */
import { describe, expect, test } from "vitest";
import { createLedgerClient } from "@session-ledger/runner/internal/client";
import { readSession } from "@session-ledger/runner/internal/session-reader";
import { metadataOf } from "@session-ledger/runner/internal/credentials";
import { createSessionWriter, messageOf } from "@session-ledger/runner/internal/writer/writer";

const BASE = { address: "127.0.0.1:1", sessionId: "s1" };

/** Calls the function without types, as a JavaScript program does. */
function untyped(call: (options: never) => unknown): (options?: unknown) => unknown {
  return (...options) => Reflect.apply(call, undefined, options);
}

type Cases = readonly (readonly [string, unknown])[];

const OF_ALL: Cases = [
  ["options", undefined],
  ["options", null],
  ["options", "127.0.0.1:1"],
  ["address", { ...BASE, address: undefined }],
  ["address", { ...BASE, address: "" }],
  ["address", { ...BASE, address: "127.0.0.1" }],
  ["address", { ...BASE, address: "127.0.0.1:0" }],
  ["address", { ...BASE, address: "http://127.0.0.1:9000" }],
  ["address", { ...BASE, address: "256.0.0.1:9000" }],
  ["token", { ...BASE, token: 5 }],
  ["token", { ...BASE, token: " \n" }],
  ["token", { ...BASE, token: "SECRET\nX: y" }],
  ["tls", { ...BASE, tls: "yes" }],
  ["tls", { ...BASE, tls: { authorities: "x" } }],
  ["tls.ca", { ...BASE, tls: { ca: Buffer.from("x") } }],
  ["tls.cert", { ...BASE, tls: { cert: "x" } }],
  ["tls", { ...BASE, tls: { cert: "SECRET", key: "SECRET" } }],
];

function refused(call: () => unknown): Error {
  try {
    call();
  } catch (error) {
    if (error instanceof TypeError || error instanceof RangeError) return error;
  }
  throw new Error("it was taken");
}

describe("a session writer", () => {
  const make = untyped(createSessionWriter);

  const cases: Cases = [
    ...OF_ALL,
    ["sessionId", { ...BASE, sessionId: undefined }],
    ["sessionId", { ...BASE, sessionId: "" }],
    ["sessionId", { ...BASE, sessionId: "a b" }],
    ["sessionId", { ...BASE, sessionId: ".." }],
    ["sessionId", { ...BASE, sessionId: "x".repeat(129) }],
    ["epochs", { ...BASE, epochs: 1n }],
    ["transport", { ...BASE, transport: "unary" }],
    ["messages", { ...BASE, messages: "both" }],
    ["lifecycleMessages", { ...BASE, lifecycleMessages: "no" }],
    ["epoch", { ...BASE, epoch: 7 }],
    ["epoch", { ...BASE, epoch: 0n }],
    ["compression", { ...BASE, compression: true }],
    ["compression", { ...BASE, compression: { maxAge: 1 } }],
    ["compression.maxAgeMs", { ...BASE, compression: { maxAgeMs: 9_000 } }],
    ["spool", { ...BASE, spool: "file" }],
    ["spool", { ...BASE, spool: { path: "x" } }],
    ["spool.file", { ...BASE, spool: { file: "" } }],
    ["spool.file", { ...BASE, spool: { file: 5 } }],
    ["spool.bytesMax", { ...BASE, spool: { bytesMax: 1 } }],
    ["onProblem", { ...BASE, onProblem: "log" }],
    ["callTimeoutMs", { ...BASE, callTimeoutMs: "1" }],
  ];

  test.each(cases)("names an invalid option: %s", (name, options) => {
    const { message } = refused(() => make(options));
    expect(message).toContain(name);
    expect(message).not.toContain("SECRET");
  });

  test("accepts a host name, an IPv6 address and a domain", async () => {
    for (const address of ["localhost:9000", "[::1]:9000", "ledger.example:1"]) {
      const writer = createSessionWriter({ ...BASE, address, token: "t\n" });
      expect(await writer.close()).toMatchObject({ complete: true });
    }
  });
});

describe("a session reader", () => {
  const read = untyped(readSession);

  const cases: Cases = [
    ...OF_ALL,
    ["sessionId", { ...BASE, sessionId: undefined }],
    ["stream", { ...BASE, stream: "event" }],
    ["expand", { ...BASE, stream: "messages", expand: true }],
    ["after", { ...BASE, after: 5 }],
    ["follow", { ...BASE, follow: 1 }],
    ["retryFor", { ...BASE, retryFor: 5 }],
    ["retryForMs", { ...BASE, retryForMs: Number.NaN }],
  ];

  test.each(cases)("names an invalid option before it is read: %s", (name, options) => {
    expect(refused(() => read(options)).message).toContain(name);
  });
});

test.each(OF_ALL.filter(([, options]) => typeof options !== "object" || options === null))(
  "a client names an invalid option: %s",
  (name, options) => {
    expect(refused(() => untyped(createLedgerClient)(options)).message).toContain(name);
  },
);

describe("the token of a client", () => {
  const limits = { deadlineMs: 1_000 };

  test("is sent without surrounding white space", async () => {
    const given = await metadataOf(() => " SECRET\r\n", limits);
    expect(given.get("authorization")).toEqual(["Bearer SECRET"]);
  });

  test.each(["SECRET\nX", "SECR\u00c9T", "", undefined])(
    "is not quoted when no header can hold it: %j",
    async (token) => {
      const source = untyped(() => token);
      const asked = Promise.resolve(Reflect.apply(metadataOf, undefined, [source, limits]));
      const failure = await asked.catch((error: unknown) => error);
      expect(failure).toMatchObject({ name: "RpcFailure", code: "UNAVAILABLE" });
      expect(String(failure)).not.toContain("SECR");
    },
  );
});

describe("a message of a writer", () => {
  const of = untyped(messageOf);

  test.each([
    ["type", { payload: "x" }],
    ["type", { type: 5, payload: "x" }],
    ["JSON", { type: "user" }],
    ["key", { type: "user", payload: "x", key: 5 }],
    ["sentAt must be a Date", { type: "user", payload: "x", sentAt: "2026-01-01T00:00:00Z" }],
    ["sentAt must be a Date", { type: "user", payload: "x", sentAt: 1_700_000_000_000 }],
    ["sentAt is not a valid time", { type: "user", payload: "x", sentAt: new Date(Number.NaN) }],
    ["sender", { type: "user", payload: "x", sender: "u1" }],
    ["sender.id", { type: "user", payload: "x", sender: { id: 5 } }],
    ["sender.isBot", { type: "user", payload: "x", sender: { isBot: "yes" } }],
  ])("is refused when it cannot be encoded: %s", (why, message) => {
    expect(refused(() => of(message)).message).toContain(why);
  });

  test("gets a key when its key is absent or empty", () => {
    for (const key of [undefined, ""]) {
      expect(of({ type: "user", payload: "x", key })).toMatchObject({
        key: expect.stringMatching(/^[0-9a-f-]{36}$/),
      });
    }
  });
});
