/**
 * A service for the tests of a file, and its gRPC client. A file that only sends requests shares the service
 * of a profile with all other files (shared-services.ts); such a file uses its own session ids.
 */
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { credentials } from "@grpc/grpc-js";
import { afterAll, beforeAll, inject } from "vitest";
import { Issuer, SharedCallers } from "./callers.ts";
import { cleanUp } from "./embedded-fixture.ts";
import { RpcClient } from "./grpc-client.ts";
import {
  endService,
  type ServiceOptions,
  type ServiceProcess,
  startAgain,
  startService,
} from "./service-process.ts";
import type { Profile, SharedService } from "./shared-services.ts";

/** A file may not end it: other files may still need it. */
export type UsedService = Omit<ServiceProcess, "stop" | "kill" | "ended" | "env">;

export interface OwnService extends ServiceProcess {
  /** After its end: again with its settings, database and ports. */
  restart(): Promise<void>;
}

interface Used<S> {
  readonly service: S;
  /** Finds the service again after a restart. */
  readonly client: RpcClient;
}

/**
 * Call it at the top of a test file, before the file's own hooks: the service runs when the first hook
 * runs. With options in place of a profile the service belongs to the file and ends after it.
 */
export function useService(of?: Profile): Used<UsedService>;
export function useService(of: ServiceOptions | (() => Promise<ServiceOptions>)): Used<OwnService>;
export function useService(
  of: Profile | ServiceOptions | (() => Promise<ServiceOptions>) = "default",
): Used<OwnService> {
  let used: UsedService | undefined;
  let own: ServiceProcess | undefined;
  const begun = <S>(service: S | undefined): S => {
    if (service === undefined) throw new Error("the service runs from the first hook on");
    return service;
  };
  beforeAll(async () => {
    if (typeof of === "string") used = asUsed(await sharedService(of));
    else used = own = await startService(typeof of === "function" ? await of() : of);
  });
  const client = new RpcClient(() => begun(used).grpcAddress);
  afterAll(async () => {
    client.close();
    if (own !== undefined) await endService(own);
    await cleanUp();
  });
  const service: OwnService = {
    get pid() {
      return begun(used).pid;
    },
    get env() {
      return begun(own).env;
    },
    get grpcAddress() {
      return begun(used).grpcAddress;
    },
    get httpAddress() {
      return begun(used).httpAddress;
    },
    get opsAddress() {
      return begun(used).opsAddress;
    },
    get dataDir() {
      return begun(used).dataDir;
    },
    get databaseUrl() {
      return begun(used).databaseUrl;
    },
    get log() {
      return begun(used).log;
    },
    get ended() {
      return begun(own).ended;
    },
    kill: (signal) => begun(own).kill(signal),
    stop: () => begun(own).stop(),
    restart: async () => {
      used = own = await startAgain(begun(own));
    },
  };
  return { service, client };
}

export async function sharedService(profile: Profile): Promise<SharedService> {
  const answer = await fetch(urlOf(profile));
  const text = await answer.text();
  if (!answer.ok) throw new Error(`the service of ${profile} did not start: ${text}`);
  const service: SharedService = JSON.parse(text);
  return service;
}

/** The issuer of a profile with tokens: each file signs the tokens of its own callers. */
export async function sharedIssuer(profile: "tokens" | "tls"): Promise<Issuer> {
  const { signingKey = {} } = await sharedService(profile);
  return Issuer.of(signingKey);
}

/** The same, with static tokens of the file. */
export async function sharedCallers(profile: "tokens" | "tls"): Promise<SharedCallers> {
  const { signingKey = {} } = await sharedService(profile);
  return SharedCallers.at(`${urlOf(profile)}/${randomUUID()}`, signingKey);
}

/** A client of the profile with TLS. */
export async function sharedClient(profile: "tls"): Promise<RpcClient> {
  const { grpcAddress, authority = "" } = await sharedService(profile);
  return new RpcClient(grpcAddress, {}, credentials.createSsl(Buffer.from(authority)));
}

/** An empty page; at `localhost` profile tokens knows its origin. */
export function pageUrl(host: string): string {
  const url = new URL(inject("sharedServices"));
  url.hostname = host;
  return url.href;
}

function urlOf(profile: Profile): string {
  return `${inject("sharedServices")}${inject("project")}/${profile}`;
}

function asUsed(service: SharedService): UsedService {
  return {
    ...service,
    get log() {
      return readFileSync(service.logFile, "utf8").split("\n").slice(0, -1);
    },
  };
}
