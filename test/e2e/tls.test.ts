/** TLS of both servers of a real service: accepted and refused connections, and changed files. */
import { once } from "node:events";
import { Agent, request } from "node:https";
import { connect as connectTcp } from "node:net";
import { writeFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { connect, type ConnectionOptions, type PeerCertificate } from "node:tls";
import { credentials } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { bearer, Doors } from "../support/callers.ts";
import {
  type Authority,
  type CertificateFiles,
  certificateFiles,
  createAuthority,
  expired,
  type Identity,
} from "../support/certificates.ts";
import { runHere } from "../support/command-line.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import {
  callHeaders,
  FLAG,
  FRAME,
  frame,
  http2Frame,
  RawConnection,
} from "../support/http2-frames.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { eventsOfRun, observedWriter } from "../support/writing.ts";

const { pushSessionMessage, watchSessionMessages, listSessions } = SessionService.method;
const LIST = "/ambient.v1.SessionService/ListSessions";

let authority: Authority;
let stranger: Authority;
const services: ServiceProcess[] = [];

beforeAll(async () => {
  [authority, stranger] = await Promise.all([createAuthority(), createAuthority("Stranger")]);
});
afterAll(async () => {
  for (const service of services) await endService(service);
  await cleanUp();
});

async function serving(
  files: CertificateFiles,
  more: Readonly<Record<string, string>> = {},
): Promise<ServiceProcess> {
  const env = { TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile, ...more };
  const service = await startService({ env });
  services.push(service);
  return service;
}

function clientOf(service: ServiceProcess, identity?: Identity, trusted = authority): RpcClient {
  const ca = Buffer.from(trusted.certificate);
  const channel =
    identity === undefined
      ? credentials.createSsl(ca)
      : credentials.createSsl(ca, Buffer.from(identity.key), Buffer.from(identity.certificate));
  return new RpcClient(service.grpcAddress, {}, channel);
}

/** An empty setting is none. */
const NO_TLS = { TLS_CERT_FILE: "", TLS_KEY_FILE: "" };

interface Page {
  readonly status: number | undefined;
  readonly body: string;
}

async function get(service: ServiceProcess, path: string, identity?: Identity): Promise<Page> {
  const agent = new Agent({
    ca: authority.certificate,
    ...(identity === undefined ? {} : { cert: identity.certificate, key: identity.key }),
  });
  try {
    const asked = request(`https://${service.httpAddress}${path}`, { agent });
    asked.end();
    const [answer] = await once(asked, "response");
    return { status: answer.statusCode, body: await text(answer) };
  } finally {
    agent.destroy();
  }
}

/** What a server shows to a new connection. */
async function shown(address: string, options: ConnectionOptions = {}): Promise<PeerCertificate> {
  const [host = "", port] = address.split(":");
  const socket = connect({ host, port: Number(port), ca: authority.certificate, ...options });
  try {
    await once(socket, "secureConnect");
    return socket.getPeerCertificate();
  } finally {
    socket.destroy();
  }
}

const SESSIONS = "/api/ambient/v1/sessions";
const HTTP2 = { ALPNProtocols: ["h2"] } as const;

async function logged(service: ServiceProcess, msg: string, since = 0): Promise<void> {
  const isLogged = (): boolean => service.log.slice(since).some((line) => line.includes(msg));
  await expect.poll(isLogged).toBe(true);
}

function messageOf(payload: string) {
  return { sessionId: "tls", eventType: "user", payload };
}

describe("a service with a certificate", () => {
  let files: CertificateFiles;
  let service: ServiceProcess;
  beforeAll(async () => {
    files = await certificateFiles(await authority.server(), authority);
    service = await serving(files);
  });

  test("answers over TLS on both servers", async () => {
    const client = clientOf(service);
    const pushed = await client.unary(pushSessionMessage, messageOf("hello"));
    expect(pushed).toMatchObject({ payload: "hello" });
    const page = await get(service, `${SESSIONS}/tls/messages`);
    expect(page.status).toBe(200);
    expect(page.body).toContain("hello");
    client.close();
  });

  test("does not answer without TLS", async () => {
    const plain = new RpcClient(service.grpcAddress);
    const call = plain.unary(listSessions, {}, { deadlineMs: 30_000 });
    await expect(call).rejects.toMatchObject({ code: "UNAVAILABLE" });
    plain.close();
    const [host = "", port] = service.httpAddress.split(":");
    const socket = connectTcp({ host, port: Number(port) });
    socket.write("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let said = "";
    socket.on("data", (chunk) => {
      said += chunk.toString("latin1");
    });
    socket.on("error", () => undefined);
    await once(socket, "close");
    expect(said).not.toContain("HTTP/");
    const metrics = await fetch(`http://${service.opsAddress}/metrics`).then((got) => got.text());
    for (const server of ["grpc", "http"])
      expect(metrics).toMatch(
        new RegExp(`tls_handshakes_failed_total\\{server="${server}"\\} [1-9]`),
      );
    expect(service.log.filter((line) => line.includes('"level":"error"'))).toEqual([]);
  });

  test("does not answer with an unknown authority, an old TLS version, or without HTTP/2", async () => {
    const client = clientOf(service, undefined, stranger);
    const call = client.unary(listSessions, {}, { deadlineMs: 30_000 });
    await expect(call).rejects.toMatchObject({ code: "UNAVAILABLE" });
    client.close();
    for (const [address, options] of [
      [service.grpcAddress, HTTP2],
      [service.httpAddress, {}],
    ] as const) {
      const old = {
        maxVersion: "TLSv1.1",
        minVersion: "TLSv1",
        ciphers: "ALL@SECLEVEL=0",
      } as const;
      await expect(shown(address, old)).rejects.toMatchObject({
        code: expect.stringMatching(/PROTOCOL|CONNRESET|ALERT/),
      });
      const newer = { maxVersion: "TLSv1.2", minVersion: "TLSv1.2", ...options } as const;
      expect(await shown(address, newer)).toHaveProperty("serialNumber");
    }
    const [host = "", port] = service.grpcAddress.split(":");
    const socket = connect({ host, port: Number(port), ca: authority.certificate });
    socket.on("error", () => undefined);
    await once(socket.resume(), "close"); // Without ALPN it is not HTTP/2.
  });

  test("shows a new certificate to new connections, and keeps open ones", async () => {
    const [client, other] = [clientOf(service), clientOf(service)];
    const watch = client.serverStream(watchSessionMessages, { sessionId: "reloaded" });
    await watch.attached;
    const addresses = [
      [service.grpcAddress, HTTP2],
      [service.httpAddress, {}],
    ] as const;
    const serials = () =>
      Promise.all(
        addresses.map(([address, options]) =>
          shown(address, options).then(({ serialNumber }) => serialNumber),
        ),
      );
    const before = await serials();
    expect(before[0]).toBe(before[1]);

    const since = service.log.length;
    await writeFile(files.certFile, "-----BEGIN CERTIFICATE-----\nnot yet\n");
    await logged(service, "TLS certificate refused, the old one stays", since);
    expect(await serials()).toEqual(before);

    await files.write(await authority.server());
    await logged(service, "TLS certificate taken", since);
    const after = await serials();
    expect(after[0]).toBe(after[1]);
    expect(after[0]).not.toBe(before[0]);

    await other.unary(pushSessionMessage, { ...messageOf("after"), sessionId: "reloaded" });
    expect(await watch.next()).toMatchObject({ value: { payload: "after" } });
    watch.cancel();
    client.close();
    other.close();
  });
});

describe("a service with an authority for clients", () => {
  let files: CertificateFiles;
  let service: ServiceProcess;
  beforeAll(async () => {
    files = await certificateFiles(await authority.server(), authority);
    service = await serving(files, { TLS_CLIENT_CA_FILE: files.caFile });
  });

  test("accepts its certificates", async () => {
    const identity = await authority.client("runner");
    const client = clientOf(service, identity);
    await client.unary(pushSessionMessage, messageOf("mutual"));
    expect(await get(service, `${SESSIONS}/tls/messages`, identity)).toMatchObject({ status: 200 });
    client.close();
  });

  test("refuses other certificates, and clients without one", async () => {
    for (const identity of [undefined, await stranger.client("runner")]) {
      const client = clientOf(service, identity);
      const call = client.unary(listSessions, {}, { deadlineMs: 30_000 });
      await expect(call).rejects.toMatchObject({ code: "UNAVAILABLE" });
      client.close();
      await expect(get(service, SESSIONS, identity)).rejects.toBeInstanceOf(Error);
    }
  });

  test("accepts a writer with a certificate", async () => {
    const { certificate: cert, key } = await authority.client("runner");
    const tls = { ca: authority.certificate, cert, key };
    const { writer } = observedWriter({ address: service.grpcAddress, tls, sessionId: "mutual" });
    for (const payload of eventsOfRun(1, 3)) writer.event(payload);
    expect(await writer.close({ timeoutMs: 60_000 })).toMatchObject({ complete: true });
  });

  test("accepts the command line with a certificate, and others get the reason", async () => {
    const env = {
      SESSION_LEDGER_ADDRESS: service.grpcAddress,
      SESSION_LEDGER_TLS_CA_FILE: files.caFile,
    };
    const list = async (more: Readonly<Record<string, string>>) =>
      runHere(["sessions", "--json", "--retry-for", "0s"], { env: { ...env, ...more } });
    const own = await certificateFiles(await authority.client("cli"), authority);
    const its = {
      SESSION_LEDGER_TLS_CERT_FILE: own.certFile,
      SESSION_LEDGER_TLS_KEY_FILE: own.keyFile,
    };
    expect(await list(its)).toMatchObject({ exitCode: 0, stderr: "" });
    const without = await list({});
    expect(without.exitCode).toBe(3);
    // Which of the two it is depends on whether the alert or the end of the connection is read first.
    expect(without.stderr).toMatch(
      /^session-ledger: UNAVAILABLE: .*(?:asks for a certificate|closed the connection at once).*SESSION_LEDGER_TLS.*\n$/,
    );
    const half = await list({ SESSION_LEDGER_TLS_CERT_FILE: own.certFile });
    expect(half).toMatchObject({ exitCode: 2, stdout: "" });
    expect(half.stderr).toContain("SESSION_LEDGER_TLS_KEY_FILE");
  });
});

test("authorization that is sent twice, as runners do, is read whole over TLS too", async () => {
  const doors = await Doors.make();
  const admin = doors.add("admin", ["admin"]);
  const other = doors.add("other", ["admin"]);
  await doors.save();
  const files = await certificateFiles(await authority.server(), authority);
  const service = await serving(files, { ...doors.env, CALL_LOG: "all" });
  const ask = async (tokens: readonly string[]): Promise<void> => {
    const tls = { ca: authority.certificate };
    using raw = (await RawConnection.to(service.grpcAddress, tls)).begin();
    const headers = callHeaders(
      LIST,
      tokens.map((token) => ["authorization", `Bearer ${token}`] as const),
    );
    raw.write(
      http2Frame({ type: FRAME.headers, flags: FLAG.endHeaders, stream: 1 }, headers),
      http2Frame({ type: FRAME.data, flags: FLAG.endStream, stream: 1 }, frame(Buffer.alloc(0))),
    );
    await raw.frame(({ type, stream }) => type === FRAME.headers && stream === 1);
  };
  const calls = async (): Promise<string> => {
    const answer = await fetch(`http://${service.opsAddress}/metrics`);
    const lines = (await answer.text()).split("\n");
    return lines.filter((line) => line.startsWith("session_ledger_calls_total")).join("\n");
  };
  await ask([admin.token, admin.token]);
  expect(await calls()).toMatch(/ListSessions",code="OK"\} 1/);
  await ask([admin.token, other.token]);
  await ask([other.token, admin.token]);
  await ask([admin.token, "x"]);
  expect(await calls()).toMatch(/ListSessions",code="OK"\} 1/);
  expect(await calls()).toMatch(/ListSessions",code="UNAUTHENTICATED"\} 3/);
  const client = clientOf(service);
  await client.unary(listSessions, {}, { metadata: bearer(admin) });
  await expect(client.unary(listSessions, {})).rejects.toMatchObject({ code: "UNAUTHENTICATED" });
  client.close();
});

describe("a start", () => {
  test("is refused without the files or with files that do not fit, with the name of the setting", async () => {
    const files = await certificateFiles(await authority.server(), authority);
    const missing = { ...files, certFile: `${files.certFile}.not` };
    await expect(serving(missing)).rejects.toThrow(/TLS_CERT_FILE/);
    await writeFile(files.keyFile, (await authority.server()).key);
    await expect(serving(files)).rejects.toThrow(
      "TLS_KEY_FILE: the key is not that of the certificate in TLS_CERT_FILE",
    );
    await expect(serving({ ...files, certFile: "" })).rejects.toThrow(/TLS_CERT_FILE/);
  });

  test("on another address needs TLS or the setting that allows plain text", async () => {
    const open = { GRPC_ADDRESS: "0.0.0.0:0", HTTP_ADDRESS: "0.0.0.0:0", ALLOW_ANONYMOUS: "true" };
    const files = await certificateFiles(await authority.server(), authority);
    await expect(serving(files, { ...open, ...NO_TLS })).rejects.toThrow(
      /ALLOW_INSECURE_TRANSPORT/,
    );
    const service = await serving(files, open);
    expect(service.grpcAddress).toMatch(/^0\.0\.0\.0:/);
  });

  test("with an expired certificate succeeds with a warning", async () => {
    const files = await certificateFiles(await authority.server(expired()), authority);
    const service = await serving(files);
    await logged(service, "the TLS certificate is not valid now");
    await expect(shown(service.grpcAddress, HTTP2)).rejects.toThrow("certificate has expired");
  });
});
