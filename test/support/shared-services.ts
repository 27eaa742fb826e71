/**
 * The services that test files share: one of each profile for a project, started when the first file asks
 * for it. They run beside the workers of Vitest, which ask for them over HTTP. A file that only sends
 * requests uses one of them. Its session ids are unique within a project; the tests of documents and of
 * another grpcurl repeat some. A file has its own service only if the file ends or restarts the service,
 * counts all rows of its ledger, or needs a setting that no profile has.
 */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { appendFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { join } from "node:path";
import { buffer, json } from "node:stream/consumers";
import { Semaphore } from "../../src/base/semaphore.ts";
import { certificateFiles, createAuthority } from "./certificates.ts";
import { Doors, type StaticToken } from "./callers.ts";
import { makeDirectory, withSql } from "./embedded-fixture.ts";
import { eventually } from "./eventually.ts";
import { type ServiceProcess, startService } from "./service-process.ts";

export const PROFILES = ["default", "tokens", "strict", "limited", "tls"] as const;
export type Profile = (typeof PROFILES)[number];

/** How a worker knows a service of another process. */
export interface SharedService
  extends Pick<
    ServiceProcess,
    "pid" | "grpcAddress" | "httpAddress" | "opsAddress" | "dataDir" | "databaseUrl"
  > {
  readonly logFile: string;
  /** Of the profiles with tokens: the private key of their issuer, a JWK. */
  readonly signingKey: object | undefined;
  /** Of the profile with TLS: PEM of the authority. */
  readonly authority: string | undefined;
}

interface Known {
  readonly env: Readonly<Record<string, string>>;
  readonly doors?: Doors;
  readonly authority?: string;
}

const KNOWN: Readonly<Record<Profile, (pages: string) => Promise<Known>>> = {
  default: async () => ({ env: {} }),
  tokens: async (pages) => {
    const doors = await Doors.make();
    const origins = { HTTP_ORIGINS: `${NAMED_ORIGIN},${pages}` };
    return { env: { ...doors.env, ...origins, CALL_LOG: "all" }, doors };
  },
  /** Sessions must be created before they are used and have chains, no long waits, large payloads. */
  strict: async () => ({
    env: {
      PAYLOAD_BYTES_MAX: "16777216",
      SESSION_POLICY: "strict",
      INTEGRITY: "chain",
      RUN_WAIT: "1s",
      RUN_STALE_AFTER: "1s",
      CANCEL_GRACE: "1s",
      SSE_HEARTBEAT_MS: "200",
      REDACTION: "on",
      REDACTION_PATTERNS: "acme=acme_[a-z0-9]{12}",
      REDACTION_KEYS: "pin",
      CALL_LOG: "all",
      LOG_LEVEL: "debug",
    },
  }),
  /** Small sessions, whose events need not be AG-UI, no search and no inspector. */
  limited: async () => ({
    env: {
      SESSION_ROWS_MAX: "10",
      SESSION_BYTES_MAX: "8192",
      PENDING_MAX: "3",
      WATCHERS_MAX: "160",
      RUN_WAIT: "2s",
      RUN_STALE_AFTER: "2s",
      VALIDATION: "lenient",
      SEARCH_LANGUAGE: "off",
      INSPECTOR: "off",
    },
  }),
  tls: async () => {
    const authority = await createAuthority();
    const files = await certificateFiles(await authority.server(), authority);
    const doors = await Doors.make();
    const tls = { TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile };
    const own = { OIDC_PROJECT_CLAIM: "project.name", WATCHERS_MAX: "15" };
    return { env: { ...doors.env, ...tls, ...own }, doors, authority: authority.certificate };
  },
};

/** An origin whose pages may read the answers of profile tokens, besides the empty page of this server. */
export const NAMED_ORIGIN = "https://chat.example";

interface Started {
  readonly service: ServiceProcess;
  readonly shared: SharedService;
  readonly doors: Doors | undefined;
  /** Of each test file that has its own. */
  readonly tokens: Map<string, readonly StaticToken[]>;
  /** For changes of the tokens: each waits for its own reading by the service. */
  readonly changes: Semaphore;
}

export class SharedServices {
  readonly #template: string;
  readonly #services = new Map<string, Promise<Started>>();
  /** Of the page of an app, by path. */
  readonly #files = new Map<
    string,
    { readonly headers: IncomingMessage["headers"]; readonly body: Buffer }
  >();
  readonly #server: Server;
  readonly #processes: ServiceProcess[] = [];

  /** The URL of a database with the tables of the service and no rows. */
  constructor(template: string) {
    this.#template = template;
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) =>
        response.writeHead(500).end(String(error)),
      );
    });
  }

  /**
   * `/` is an empty page, `/app/name` a file that a test has put, `/project/profile` a service, and
   * `/project/profile/file` takes tokens.
   */
  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [, project = "", asked, file] = request.url?.split("/") ?? [];
    if (project === "app") return await this.#answerFile(request, response);
    const profile = PROFILES.find((name) => name === asked);
    if (profile === undefined) {
      response.setHeader("content-type", "text/html; charset=utf-8").end("<!doctype html>");
      return;
    }
    const started = await this.#of(project, profile);
    if (file === undefined) response.end(JSON.stringify(started.shared));
    else {
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- SharedCallers sends them.
      const tokens = (await json(request)) as readonly StaticToken[];
      await started.changes.run(() => takeTokens(started, file, tokens));
      response.end();
    }
  }

  /** A file has the type and the policy with which it was put. */
  async #answerFile(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { url = "", method, headers } = request;
    if (method === "PUT") this.#files.set(url, { headers, body: await buffer(request) });
    const file = this.#files.get(url);
    if (file === undefined) response.statusCode = 404;
    for (const name of ["content-type", "content-security-policy"])
      response.setHeader(name, file?.headers[name] ?? "");
    response.end(method === "PUT" ? "" : file?.body);
  }

  /** Resolves with the URL to which the names of a project and a profile are added. */
  async start(): Promise<string> {
    await once(this.#server.listen(0, "127.0.0.1"), "listening");
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("no port");
    return `http://127.0.0.1:${address.port}/`;
  }

  async stop(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await Promise.all(this.#processes.map((service) => service.kill("SIGKILL")));
  }

  #of(project: string, profile: Profile): Promise<Started> {
    const key = `${project} ${profile}`;
    const found = this.#services.get(key) ?? this.#startOne(project, profile);
    this.#services.set(key, found);
    return found;
  }

  async #startOne(project: string, profile: Profile): Promise<Started> {
    const address = this.#server.address();
    const port = typeof address === "object" ? address?.port : undefined;
    const { env, doors, authority } = await KNOWN[profile](`http://localhost:${port}`);
    const dataDir = await makeDirectory();
    const logFile = join(dataDir, "log");
    const url = new URL(this.#template);
    const template = url.pathname.slice(1);
    url.pathname = `/test_${randomUUID().replaceAll("-", "")}`;
    const server = new URL(url);
    server.pathname = "/postgres";
    await withSql(
      server.href,
      (sql) => sql`create database ${sql(url.pathname.slice(1))} template ${sql(template)}`,
    );
    const service = await startService({
      dataDir,
      databaseUrl: url.href,
      env: project === "sharded" ? { ...env, ENGINE: "citus" } : env,
      onLine: (line) => appendFileSync(logFile, `${line}\n`),
    });
    this.#processes.push(service);
    const { pid, grpcAddress, httpAddress, opsAddress, databaseUrl } = service;
    const addresses = { grpcAddress, httpAddress, opsAddress };
    const signingKey = await doors?.signingKey();
    const shared = { pid, ...addresses, dataDir, databaseUrl, logFile, signingKey, authority };
    const changes = new Semaphore({ atOnce: 1 });
    return { service, shared, doors, tokens: new Map(), changes };
  }
}

/** Resolves when the service has read them. */
async function takeTokens(
  { service, doors, tokens }: Started,
  file: string,
  ofFile: readonly StaticToken[],
): Promise<void> {
  if (doors === undefined) throw new Error("the profile has no tokens");
  const taken = (line: string) => line.includes(doors.tokensFile) && line.includes("file taken");
  const reads = () => service.log.filter(taken).length;
  const before = reads();
  tokens.set(file, ofFile);
  await doors.write([...tokens.values()].flat());
  await eventually(() => {
    if (reads() === before) throw new Error("the service has not read the tokens yet");
  });
}
