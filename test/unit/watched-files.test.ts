import { rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { readFile } from "node:fs/promises";
import { WatchedFiles } from "../../src/transport/watched-files.ts";

const POLL_MS = 500;
const path = join(tmpdir(), `watched-${process.pid}`);

afterEach(() => {
  vi.useRealTimers();
  rmSync(path);
});

/** One poll, to its end: the next one is scheduled then. */
async function look(): Promise<void> {
  vi.advanceTimersByTime(POLL_MS);
  while (vi.getTimerCount() === 0) await new Promise((resolve) => setImmediate(resolve));
}

/** The bug: a single file was read at the first look, and a half-written one logged as refused. */
test("a file that is half written at a look is read at a later one, when it is whole", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const taken: string[] = [];
  const take = async (): Promise<void> => void taken.push(await readFile(path, "utf8"));
  writeFileSync(path, "old");
  const files = new WatchedFiles(
    { take, onChange: () => undefined },
    { paths: [path], pollMs: POLL_MS },
  );
  await files.start();
  writeFileSync(path, "half");
  await look();
  writeFileSync(path, "half and half");
  await look();
  expect(taken).toEqual(["old"]);
  await look();
  expect(taken).toEqual(["old", "half and half"]);
  await files.stop();
});
