/** Keys from a URL: an issuer that answers, rotates, is slow, lies, or is gone. */
import { once } from "node:events";
import { createServer, type RequestListener, type Server } from "node:http";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ISSUER_URL_LIMITS, IssuerKeys, IssuerUrl, OidcVerifier } from "../../src/auth/oidc.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import {
  AUDIENCE,
  type HandClock,
  handClock,
  ISSUER,
  refusalOf,
  startAuth,
  TestIssuer,
} from "../support/auth.ts";
import type { LogRecord } from "../support/rpc-fixture.ts";
import { describeUnitContract } from "../support/unit-contract.ts";
import { eventually } from "../support/eventually.ts";

let issuer: TestIssuer;
let server: Server;
let url: string;
let requests: number;
/** What the issuer answers with. */
let answer: RequestListener;
const publish: RequestListener = (_request, response) => response.end(issuer.jwks);

beforeEach(async () => {
  issuer = await TestIssuer.create();
  answer = publish;
  requests = 0;
  server = createServer((request, response) => {
    requests += 1;
    answer(request, response);
  });
  url = await listen(0);
});
afterEach(async () => close());

async function listen(port: number): Promise<string> {
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return `http://127.0.0.1:${address.port}/keys`;
}

async function close(): Promise<void> {
  if (!server.listening) return;
  const closed = once(server, "close");
  server.close();
  server.closeAllConnections();
  await closed;
}

interface Fixture extends AsyncDisposable {
  readonly unit: IssuerUrl;
  readonly clock: HandClock;
  readonly records: readonly LogRecord[];
  refusalOf(token: string): Promise<string>;
  refreshes(): Promise<readonly string[]>;
}

/** Keys are read again only when a test asks for it, or a token needs it. */
async function start(limits: Partial<typeof ISSUER_URL_LIMITS> = {}): Promise<Fixture> {
  const records: LogRecord[] = [];
  const log = createLogTo({ write: (line) => records.push(JSON.parse(line)) });
  const [clock, metrics, keys] = [handClock(), createMetrics(), new IssuerKeys()];
  const unit = new IssuerUrl({ log, metrics, clock, keys }, url, {
    ...ISSUER_URL_LIMITS,
    ...limits,
  });
  const verifier = new OidcVerifier(
    { clock, keys, lookAgain: () => unit.lookAgain() },
    {
      issuer: ISSUER,
      audience: AUDIENCE,
      algorithms: ["ES256"],
      rolesClaim: "roles",
      projectClaim: "project",
    },
  );
  await unit.start();
  return {
    unit,
    clock,
    records,
    refusalOf: (token) => refusalOf(() => verifier.verify(token)),
    async refreshes() {
      const text = await metrics.text();
      return text.split("\n").filter((line) => line.startsWith("session_ledger_key_refreshes"));
    },
    [Symbol.asyncDispose]: () => unit.stop(),
  };
}

describe("keys from a URL", () => {
  test("are read at start, and not with every token", async () => {
    await using fixture = await start();
    for (let n = 0; n < 20; n += 1) {
      expect(await fixture.refusalOf(await issuer.token({ sub: `u${n}` }))).toBe("none");
    }
    expect(requests).toBe(1);
  });

  test("are read again for a token with an unknown key id, at most once in the cool-down", async () => {
    await using fixture = await start();
    await issuer.addKey("two");
    const token = await issuer.token({}, { kid: "two" });
    expect(await fixture.refusalOf(token)).toBe("unknown_key");
    expect(requests).toBe(1); // The start was a moment ago.
    fixture.clock.advance(ISSUER_URL_LIMITS.coolDownMs);
    expect(await fixture.refusalOf(token)).toBe("none");
    expect(requests).toBe(2);
    fixture.clock.advance(ISSUER_URL_LIMITS.coolDownMs);
    const forger = await TestIssuer.create("three");
    const forged = await forger.token({}, { kid: "three" });
    const refusals = await Promise.all(Array.from({ length: 50 }, () => fixture.refusalOf(forged)));
    expect(new Set(refusals)).toEqual(new Set(["unknown_key"]));
    expect(requests).toBe(3);
  });

  test("are refreshed regularly, and a key that the issuer removed is no longer accepted", async () => {
    await using fixture = await start({ refreshMs: 5 });
    const token = await issuer.token();
    expect(await fixture.refusalOf(token)).toBe("none");
    await issuer.addKey("two");
    issuer.removeKey("one");
    await eventually(async () => expect(await fixture.refusalOf(token)).toBe("unknown_key"));
    expect(await fixture.refusalOf(await issuer.token({}, { kid: "two" }))).toBe("none");
  });

  test("stay valid for a day while the issuer is down; then tokens get KEYS_UNAVAILABLE", async () => {
    await using fixture = await start({ retryMs: 5 });
    const token = await issuer.token({ exp: 4_000_000_000 });
    await close();
    fixture.clock.advance(ISSUER_URL_LIMITS.staleMs - 1);
    await fixture.unit.lookAgain();
    expect(await fixture.refusalOf(token)).toBe("none");
    fixture.clock.advance(1);
    await eventually(async () => expect(await fixture.refusalOf(token)).toBe("KEYS_UNAVAILABLE"));
    const failed = fixture.records.filter(({ msg }) => msg === "keys of the issuer not read");
    expect(failed).toHaveLength(1); // Not one a try.
    expect(fixture.records.map(({ msg }) => msg)).toContain("keys of the issuer dropped");
    // It comes back, on the same port, and the service finds it by itself.
    server = createServer(publish);
    await listen(Number(new URL(url).port));
    await eventually(async () => expect(await fixture.refusalOf(token)).toBe("none"));
  });

  test.each<[string, RequestListener, RegExp]>([
    ["an error", (_, response) => response.writeHead(503).end("{}"), /status 200, got 503/],
    ["a page", (_, response) => response.end("<html>"), /expected JSON/],
    ["no keys", (_, response) => response.end('{"keys":[]}'), /at least one key/],
    [
      "a redirect, to itself even",
      (request, response) => {
        if (request.url === "/keys") response.writeHead(302, { location: "/other" }).end();
        else publish(request, response);
      },
      /status 200, got 302/,
    ],
    [
      "more than any issuer needs",
      (_, response) => response.end(JSON.stringify({ keys: [], x: "x".repeat(2_000_000) })),
      /at most 1048576 bytes/,
    ],
  ])("do not change after %s", async (_what, bad, expected) => {
    await using fixture = await start();
    const token = await issuer.token();
    answer = bad;
    fixture.clock.advance(ISSUER_URL_LIMITS.coolDownMs);
    await fixture.unit.lookAgain();
    expect(requests).toBe(2); // Nothing was followed.
    expect(await fixture.refusalOf(token)).toBe("none");
    const [failed] = fixture.records.filter(({ msg }) => msg === "keys of the issuer not read");
    expect(JSON.stringify(failed)).toMatch(expected);
  });

  test.each<[string, RequestListener]>([
    ["sends nothing", () => undefined],
    ["never ends", (_, response) => response.write('{"keys":[')],
  ])("do not delay the start when the issuer %s", async (_what, silent) => {
    answer = silent;
    await using fixture = await start({ fetchMs: 100 });
    expect(await fixture.refusalOf(await issuer.token())).toBe("KEYS_UNAVAILABLE");
    expect(await fixture.refreshes()).toContain(
      'session_ledger_key_refreshes_total{keys="oidc",outcome="failed"} 1',
    );
  });
});

test("a service starts while its issuer is down, and its static tokens work", async () => {
  await close();
  const token = "correct-horse-battery";
  await using auth = await startAuth({
    options: {
      oidcIssuer: ISSUER,
      oidcAudience: AUDIENCE,
      oidcJwksUrl: url,
      authTokens: JSON.stringify({ tokens: [{ id: "ci", token, roles: ["runner"] }] }),
    },
  });
  expect(await auth.ask(token)).toMatchObject({ id: "ci" });
  expect(await auth.refusalOf(await issuer.token())).toBe("KEYS_UNAVAILABLE");
});

describeUnitContract("the keys at a URL", {
  create: () => {
    const log = createLogTo({ write: () => undefined }, "silent");
    const parts = { log, metrics: createMetrics(), clock: handClock(), keys: new IssuerKeys() };
    return new IssuerUrl(parts, url, { ...ISSUER_URL_LIMITS, refreshMs: 1 });
  },
  isOfUse: () => requests > 0,
  async remains() {
    const before = requests;
    await new Promise(setImmediate);
    return requests === before ? [] : ["it still reads"];
  },
});
