/**
 * `@session-ledger/runner` as its users have it: packed, installed by npm in an empty folder with the
 * packages that it asks for, checked with two generations of TypeScript, and run on each supported Node
 * against a real service.
 */
import { execFile } from "node:child_process";
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { arch, platform } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { buildRunner } from "../../packages/runner/build.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { sharedIssuer, sharedService, useService } from "../support/use-service.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const TSC = join(ROOT, "node_modules/typescript/bin/tsc");
const NAME = "@session-ledger/runner";
const PACKED_BYTES_MAX = 6_000_000;
const DEPENDENCIES = ["@bufbuild/protobuf", "@grpc/grpc-js"];

const manifestSchema = z.looseObject({
  dependencies: z.record(z.string(), z.string()),
  // The package of the service has none.
  peerDependencies: z.record(z.string(), z.string()).default({}),
  peerDependenciesMeta: z.record(z.string(), z.object({ optional: z.literal(true) })).default({}),
  exports: z.record(z.string(), z.unknown()).default({}),
});
const packedSchema = z.object({ filename: z.string(), unpackedSize: z.number() });

const { service } = useService("tls");
let folder: string;
let caFile: string;
let token: string;
/** Where the package is installed. */
let consumer: string;
let packed: z.infer<typeof packedSchema>;

/** npm without the settings of the npm that runs the tests. */
async function npm(cwd: string, ...args: readonly string[]): Promise<string> {
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith("npm_"));
  const options = { cwd, env: Object.fromEntries(own), maxBuffer: 16 * 1024 * 1024 };
  return (await promisify(execFile)("npm", args, options)).stdout;
}

function install(cwd: string, ...packages: readonly string[]): Promise<string> {
  const quick = ["--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"];
  return npm(cwd, "install", ...quick, ...packages);
}

/** The standard output, and all that a program says that fails. */
async function outputOf(program: string, ...args: readonly string[]): Promise<string> {
  const { GRPC_DEFAULT_SSL_ROOTS_FILE_PATH: _, ...inherited } = process.env;
  const env = { ...inherited, NODE_EXTRA_CA_CERTS: caFile };
  const ended = promisify(execFile)(program, args, { cwd: consumer, env });
  const { stdout } = await ended.catch((error: unknown) => {
    const { stdout: said, stderr } = z
      .object({ stdout: z.string(), stderr: z.string() })
      .parse(error);
    return { stdout: `${said}${stderr}` };
  });
  return stdout;
}

async function manifestIn(path: string): Promise<z.infer<typeof manifestSchema>> {
  return manifestSchema.parse(JSON.parse(await readFile(join(path, "package.json"), "utf8")));
}

/** The names of the entries, as a program imports them. */
async function entryNames(): Promise<readonly string[]> {
  const { exports } = await manifestIn(installed());
  const names = Object.keys(exports).filter((name) => name !== "./package.json");
  return names.map((name) => join(NAME, name));
}

/** The program of a user, and one that loads every entry. */
async function writePrograms(): Promise<void> {
  await copyFile(join(ROOT, "test/support/consumer.ts"), join(consumer, "main.ts"));
  const names = await entryNames();
  const imports = names.map((name, at) => `import * as entry${at} from "${name}";`);
  const shown = names.map((_, at) => `Object.keys(entry${at}).length`);
  const entries = [...imports, `process.stdout.write(JSON.stringify([${shown.join(", ")}]));`];
  await writeFile(join(consumer, "entries.ts"), entries.join("\n"));
}

function installed(): string {
  return join(consumer, "node_modules", NAME);
}

beforeAll(async () => {
  folder = await makeDirectory();
  caFile = join(folder, "ca.crt");
  const { authority = "" } = await sharedService("tls");
  await writeFile(caFile, authority);
  ({ token } = await (await sharedIssuer("tls")).signed("consumer", ["admin"]));
  const made = join(folder, "made");
  await buildRunner(made);
  const listed: unknown = JSON.parse(
    await npm(made, "pack", "--json", "--pack-destination", folder),
  );
  // An array up to npm 10, and an object since.
  const [first] = Object.values(z.record(z.string(), z.unknown()).parse({ ...Object(listed) }));
  packed = packedSchema.parse(first);
  consumer = join(folder, "consumer");
  await mkdir(consumer);
  await writeFile(join(consumer, "package.json"), '{"type":"module"}');
  await install(consumer, join(folder, packed.filename));
});

test("the package brings gRPC and protobuf, and no other package of the service", async () => {
  const { dependencies, peerDependencies, peerDependenciesMeta } = await manifestIn(installed());
  expect(Object.keys(dependencies)).toEqual(DEPENDENCIES);
  expect(Object.keys(peerDependenciesMeta)).toEqual(Object.keys(peerDependencies));
  const modules = join(consumer, "node_modules");
  const present = (await readdir(modules, { recursive: true })).map(String);
  expect(present).toEqual(expect.arrayContaining([...DEPENDENCIES]));
  const ofService = Object.keys((await manifestIn(ROOT)).dependencies);
  const others = ofService.filter((name) => !DEPENDENCIES.includes(name));
  expect(others.filter((name) => present.includes(name))).toEqual([]);
});

test("the package is small, and has every entry of its source but the internal ones", async () => {
  expect(packed.unpackedSize).toBeLessThan(PACKED_BYTES_MAX);
  const { exports } = await manifestIn(installed());
  const source = await manifestIn(join(ROOT, "packages/runner"));
  const entries = Object.keys(source.exports).filter((name) => name !== "./internal/*");
  expect(Object.keys(exports)).toEqual([...entries, "./package.json"]);
  for (const name of entries)
    for (const file of Object.values(z.record(z.string(), z.string()).parse(exports[name])))
      await expect(readFile(join(installed(), file), "utf8")).resolves.not.toBe("");
});

test("only the entries of frameworks that one imports need another package", async () => {
  const names = await entryNames();
  const script = `
    const found = await Promise.allSettled(${JSON.stringify(names)}.map((name) => import(name)));
    process.stdout.write(found.map(({ status }) => status).join());
  `;
  const ended = await outputOf(process.execPath, "--input-type=module", "-e", script);
  const failed = ended.split(",").map((status, at) => (status === "rejected" ? names[at] : []));
  expect(failed.flat()).toEqual([`${NAME}/copilotkit`]);
});

describe("with what a user of it has", () => {
  let tools: string;
  /** Of TypeScript 7 on the programs. */
  let complaints: string;

  beforeAll(async () => {
    const { peerDependencies } = await manifestIn(installed());
    const peers = Object.entries(peerDependencies).map(([name, range]) => `${name}@${range}`);
    await install(consumer, "@types/node@20", ...peers);
    await writePrograms();
    tools = join(folder, "tools");
    await mkdir(tools);
    const host = `npm:node-${platform()}-${arch()}`;
    await install(tools, "ts5@npm:typescript@5.9", `node20@${host}@20`, `node22@${host}@22`);
    const compile = [TSC, ...strict, "--outDir", "compiled", "main.ts", "entries.ts"];
    complaints = await outputOf(process.execPath, ...compile);
  });

  const checks = ["--strict", "--exactOptionalPropertyTypes", "--skipLibCheck", "false"];
  const target = ["--module", "nodenext", "--target", "es2022", "--lib", "es2022"];
  const strict = [...checks, ...target, "--types", "node"];

  test("TypeScript 5.9 and 7 accept the declarations of all entries", async () => {
    expect(complaints).toBe("");
    const tsc = (...args: readonly string[]) =>
      outputOf(process.execPath, join(tools, "node_modules/ts5/bin/tsc"), ...args);
    expect(await tsc("--version")).toContain("Version 5.9.");
    expect(await tsc(...strict, "--noEmit", "main.ts", "entries.ts")).toBe("");
  });

  test.each([
    ["20", () => join(tools, "node_modules/node20/bin/node")],
    ["22", () => join(tools, "node_modules/node22/bin/node")],
    ["24", () => process.execPath],
  ])("Node %s loads all entries, and a program writes and reads", async (version, node) => {
    expect(await outputOf(node(), "--version")).toMatch(new RegExp(`^v${version}\\.`));
    // Bug: no entry loaded on Node 20, because it has no list of the authorities of the system.
    const entries = await outputOf(node(), "compiled/entries.js");
    expect(entries).toMatch(/^\[[1-9]\d*(,[1-9]\d*){2,}\]$/);
    const args = ["compiled/main.js", service.grpcAddress, `node-${version}`, token];
    const said = await outputOf(node(), ...args);
    expect(said).toMatch(/^\{.*\}$/);
    const written: unknown = JSON.parse(said);
    expect(written).toMatchObject({
      merged: { rows: 1 },
      closed: { complete: true, dropped: 0, refused: 0 },
      events: expect.arrayContaining(["TEXT_MESSAGE_CONTENT Hel", "RUN_FINISHED"]),
      messages: expect.arrayContaining(["assistant Hello"]),
      failure: "NOT_FOUND SESSION_NOT_FOUND",
    });
    const { tokens, copied, events } = z
      .object({ tokens: z.unknown(), copied: z.unknown(), events: z.unknown() })
      .parse(written);
    expect([tokens, copied]).toEqual([events, events]);
  });
});
