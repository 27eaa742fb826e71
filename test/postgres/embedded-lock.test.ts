/** One service a DATA_DIR: refused and accepted starts, and exactly one winner of many. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, readFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { lockCluster } from "../../src/postgres/lock.ts";
import {
  addRow,
  cleanUp,
  countRows,
  IS_ROOT,
  makeDirectory,
  spawnOwner,
  startOwner,
} from "../support/embedded-fixture.ts";

/** Processes of another PID namespace, as a container has them. */
const ISOLATED = ["--pid", "--fork", "--kill-child", "--mount-proc"];

/** False where the machine makes no namespaces. */
function canIsolate(): boolean {
  return spawnSync("unshare", [...ISOLATED, "true"]).status === 0;
}

let dataDir: string;

beforeEach(async () => {
  dataDir = await makeDirectory();
});

afterAll(cleanUp);

async function take(): ReturnType<typeof lockCluster> {
  const lock = await lockCluster({ home: dataDir, dataDir });
  onTestFinished(() => lock.release());
  return lock;
}

describe("a lock", () => {
  test("names its owner and start time, and is refused to others", async () => {
    await take();
    await expect(take()).rejects.toThrow(
      `DATA_DIR ${dataDir} is in use by session-ledger process ${process.pid} on ${hostname()}, started 20`,
    );
  });

  test("that was released is free, and only one empty file stays", async () => {
    for (let round = 0; round < 3; round += 1) {
      const lock = await take();
      await lock.release();
      await lock.release();
    }
    expect(await readdir(dataDir)).toEqual(["session-ledger.lock"]);
    expect(await readFile(join(dataDir, "session-ledger.lock"), "utf8")).toBe("");
  });

  test("that cannot be taken for another reason names the reason", async () => {
    await mkdir(join(dataDir, "session-ledger.lock"));
    await expect(take()).rejects.toThrow(
      /DATA_DIR .* cannot be locked \(.+\): it needs a file system with locks/,
    );
  });

  test.runIf(IS_ROOT && canIsolate())(
    "of another container is refused, and free as soon as it is killed",
    async () => {
      const script = fileURLToPath(new URL("../support/embedded-owner.ts", import.meta.url));
      const container = spawn("unshare", [...ISOLATED, process.execPath, script, dataDir], {
        stdio: ["ignore", "pipe", "pipe"],
      });
      onTestFinished(() => void container.kill("SIGKILL"));
      const ended = once(container, "exit");
      const line = once(createInterface({ input: container.stdout }), "line");
      const first = await Promise.race([line, ended]);
      expect(String(first[0])).toContain("postgres://");
      await expect(take()).rejects.toThrow("is in use by session-ledger process 1 on ");
      container.kill("SIGKILL");
      await ended;
      await expect.poll(() => take().then(() => "taken", String)).toBe("taken");
    },
  );
});

describe("two services in one DATA_DIR", () => {
  test("the second is refused with the name of the first, which continues", async () => {
    const first = await startOwner(dataDir);
    await addRow(first.url);
    const second = await spawnOwner(dataDir).answer;
    expect(second).toEqual({
      refused: expect.stringContaining(
        `DATA_DIR ${dataDir} is in use by session-ledger process ${first.pid} on `,
      ),
    });
    expect(await countRows(first.url)).toBe(1);
    await first.kill("SIGTERM");
    const third = await startOwner(dataDir);
    expect(await countRows(third.url)).toBe(1);
    await third.kill("SIGTERM");
  });

  test("exactly one of three starts at once wins, also over the lock of a killed service", async () => {
    for (const where of ["a new directory", "the directory of a killed service"]) {
      const owners = [spawnOwner(dataDir), spawnOwner(dataDir), spawnOwner(dataDir)];
      const answers = await Promise.all(owners.map((owner) => owner.answer));
      const refusals = answers.flatMap((answer) => ("refused" in answer ? [answer.refused] : []));
      const refusal = expect.stringContaining("in use by session-ledger process");
      expect({ where, refusals }).toEqual({ where, refusals: [refusal, refusal] });
      await Promise.all(owners.map((owner) => owner.kill("SIGKILL")));
    }
  });
});
