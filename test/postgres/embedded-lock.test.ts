/** One service a DATA_DIR: refused and accepted starts, and exactly one winner of many. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { lockDataDir } from "../../src/postgres/lock.ts";
import { thisProcess } from "../../src/postgres/process.ts";
import {
  addRow,
  cleanUp,
  countRows,
  makeDirectory,
  recordingLog,
  spawnOwner,
  startOwner,
} from "../support/embedded-fixture.ts";

const HEARTBEAT_MS = 20;

let dataDir: string;

beforeEach(async () => {
  dataDir = await makeDirectory();
});

afterAll(cleanUp);

async function take(log = recordingLog()): ReturnType<typeof lockDataDir> {
  const lock = await lockDataDir(dataDir, {
    log,
    heartbeatMs: HEARTBEAT_MS,
    signal: new AbortController().signal,
  });
  onTestFinished(() => lock.release());
  return lock;
}

/** As a process that was killed leaves it. */
async function leaveLock(
  owner: Partial<Awaited<ReturnType<typeof thisProcess>>>,
  number = 1,
): Promise<string> {
  const path = join(dataDir, `session-ledger.lock.${number}`);
  const content = { ...(await thisProcess()), startedAt: "2026-01-01T00:00:00.000Z", ...owner };
  await writeFile(path, JSON.stringify(content));
  return path;
}

async function deadPid(): Promise<number> {
  const child = spawn("true");
  await once(child, "exit");
  return child.pid ?? -1;
}

describe("a lock", () => {
  test("names its owner and start time, and is refused to others", async () => {
    await take();
    await expect(take()).rejects.toThrow(
      new RegExp(`is in use by session-ledger process ${process.pid}, started 20\\d\\d-`),
    );
  });

  test("that was released is free, and only one file stays", async () => {
    for (let round = 0; round < 3; round += 1) await (await take()).release();
    expect(await readdir(dataDir)).toEqual(["session-ledger.lock.3"]);
  });

  test("of a dead process is free", async () => {
    await leaveLock({ pid: await deadPid() });
    await take();
    expect(await readdir(dataDir)).toEqual(["session-ledger.lock.2"]);
  });

  test("of a pid that now belongs to a later process is free", async () => {
    await leaveLock({ startMark: "1" });
    await take();
    expect(
      JSON.parse(await readFile(join(dataDir, "session-ledger.lock.2"), "utf8")),
    ).toMatchObject({
      pid: process.pid,
    });
  });

  test("without a readable owner is free", async () => {
    await writeFile(join(dataDir, "session-ledger.lock.1"), '{"pid": "');
    await (await take()).release();
    await writeFile(join(dataDir, "session-ledger.lock.3"), '{"pid": 0}');
    await take();
    expect(await readdir(dataDir)).toEqual(["session-ledger.lock.4"]);
  });

  test.runIf(process.platform === "linux")("of a zombie is free", async () => {
    // By then `sleep 60` has taken the shell's place, and never asks for its child's exit code.
    const shell = spawn("sh", ["-c", "sleep 0.1 & echo $!; exec sleep 60"]);
    onTestFinished(() => void shell.kill());
    const pid = Number((await once(shell.stdout, "data")).join());
    await expect.poll(() => readFile(`/proc/${pid}/stat`, "utf8")).toMatch(/^\d+ \(\w+\) Z /);
    const stat = await readFile(`/proc/${pid}/stat`, "utf8");
    await leaveLock({ pid, startMark: stat.split(" ")[21] ?? "" });
    await take();
    expect(await readdir(dataDir)).toEqual(["session-ledger.lock.2"]);
  });

  test("of another container is free only when its heartbeat stops", async () => {
    // The pid is one that lives here, and the other way round: it must not count in either case.
    const path = await leaveLock({ scope: "elsewhere" });
    const beating = setInterval(() => void utimes(path, new Date(), new Date()), HEARTBEAT_MS / 2);
    onTestFinished(() => clearInterval(beating));
    await expect(take()).rejects.toThrow(/process \d+ of another container or host, started 2026/);
    clearInterval(beating);
    await take();
    expect(await readdir(dataDir)).toEqual(["session-ledger.lock.2"]);
  });

  test("has a heartbeat while it is held", async () => {
    await take();
    await leaveLock({ scope: "elsewhere" }, 1); // Our own, as one sees it from another container.
    await expect(take()).rejects.toThrow("of another container or host");
  });

  test("of a dead owner goes to exactly one of many starts at once", async () => {
    for (let round = 0; round < 20; round += 1) {
      dataDir = await makeDirectory();
      await leaveLock({ pid: await deadPid() });
      const answers = await Promise.allSettled(Array.from({ length: 8 }, () => take()));
      const losers = answers.filter((answer) => answer.status === "rejected");
      expect(losers).toHaveLength(7);
      expect(losers.map(({ reason }) => String(reason))).toEqual(
        losers.map(() => expect.stringMatching(/in use by|being taken/)),
      );
    }
  });

  test("is not taken by a start that slept while another owner came and went", async () => {
    const path = await leaveLock({ scope: "elsewhere" }, 1);
    const log = recordingLog();
    const comeAndGo = async (): Promise<void> => {
      await log.until("data_dir_owner_watched");
      await leaveLock({}, 3); // Number 2 was given back and removed meanwhile: it is free to create.
      await rm(path);
    };
    const [slow] = await Promise.allSettled([take(log), comeAndGo()]);
    expect(String(slow.status === "rejected" && slow.reason)).toContain(
      `in use by session-ledger process ${process.pid},`,
    );
    expect(await readdir(dataDir)).toEqual(["session-ledger.lock.3"]);
  });

  test("has one owner at a time through many owners", async () => {
    let owners = 0;
    let taken = 0;
    let ownersMost = 0;
    const comeAndGo = async (): Promise<void> => {
      while (taken < 100) {
        const lock = await take().catch(() => undefined);
        if (lock === undefined) continue;
        taken += 1;
        owners += 1;
        ownersMost = Math.max(ownersMost, owners);
        await readdir(dataDir);
        owners -= 1;
        await lock.release();
      }
    };
    await Promise.all(Array.from({ length: 6 }, comeAndGo));
    expect(ownersMost).toBe(1);
  });
});

describe("two services in one DATA_DIR", () => {
  test("the second is refused with the name of the first, which continues", async () => {
    const first = await startOwner(dataDir);
    await addRow(first.url);
    const second = await spawnOwner(dataDir).answer;
    expect(second).toEqual({
      refused: expect.stringMatching(
        new RegExp(`DATA_DIR ${dataDir} is in use by session-ledger process ${first.pid}, started`),
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
