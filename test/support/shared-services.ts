/**
 * The services that test files share: one of each profile for a project, started when the first file asks
 * for it. Session ids are unique within a project; documents and the tests of another grpcurl use some again. They run beside the workers of Vitest, which ask for them over HTTP. A file that only sends
 * requests uses one of them and its own session ids. A file has a service of its own only if it ends it,
 * restarts it, counts all rows of its ledger, or needs a setting that no profile has.
 */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { appendFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { join } from "node:path";
import { certificateFiles, createAuthority } from "./certificates.ts";
import { Doors } from "./callers.ts";
import { makeDirectory, withSql } from "./embedded-fixture.ts";
import { type ServiceProcess, startService } from "./service-process.ts";

export const PROFILES = ["default", "tokens", "strict", "tls"] as const;
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
  readonly signingKey?: object;
  readonly authority?: string;
}

const KNOWN: Readonly<Record<Profile, () => Promise<Known>>> = {
  default: async () => ({ env: {} }),
  tokens: withTokens,
  /** Sessions must be created before they are used, and nothing that waits does so for long. */
  strict: async () => ({
    env: {
      SESSION_POLICY: "strict",
      RUN_WAIT: "1s",
      RUN_STALE_AFTER: "1s",
      CANCEL_GRACE: "1s",
      REDACTION: "on",
    },
  }),
  tls: async () => {
    const authority = await createAuthority();
    const files = await certificateFiles(await authority.server(), authority);
    const tokens = await withTokens();
    const tls = { TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile };
    return { ...tokens, env: { ...tokens.env, ...tls }, authority: authority.certificate };
  },
};

async function withTokens(): Promise<Known> {
  const doors = await Doors.make();
  return { env: { ...doors.env, CALL_LOG: "all" }, signingKey: await doors.signingKey() };
}

export class SharedServices {
  readonly #template: string;
  readonly #services = new Map<string, Promise<SharedService>>();
  readonly #server: Server;
  readonly #processes: ServiceProcess[] = [];

  /** The URL of a database with the tables of the service and no rows. */
  constructor(template: string) {
    this.#template = template;
    this.#server = createServer((request, response) => {
      const [, project = "", asked] = request.url?.split("/") ?? [];
      const profile = PROFILES.find((name) => name === asked);
      if (profile === undefined) {
        response.writeHead(404).end();
        return;
      }
      this.#of(project, profile).then(
        (service) => response.end(JSON.stringify(service)),
        (error: unknown) => response.writeHead(500).end(String(error)),
      );
    });
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

  #of(project: string, profile: Profile): Promise<SharedService> {
    const key = `${project} ${profile}`;
    const found = this.#services.get(key) ?? this.#startOne(profile);
    this.#services.set(key, found);
    return found;
  }

  async #startOne(profile: Profile): Promise<SharedService> {
    const { env, signingKey, authority } = await KNOWN[profile]();
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
      env: { DATABASE_URL: url.href, ...env },
      onLine: (line) => appendFileSync(logFile, `${line}\n`),
    });
    this.#processes.push(service);
    const { pid, grpcAddress, httpAddress, opsAddress, databaseUrl } = service;
    return {
      pid,
      grpcAddress,
      httpAddress,
      opsAddress,
      dataDir,
      databaseUrl,
      logFile,
      signingKey,
      authority,
    };
  }
}
