import { Writable } from "node:stream";
import { expect, test } from "vitest";
import { Printer } from "../../src/cli/io.ts";
import { visible } from "../../src/cli/io.ts";

const signal = new AbortController().signal;

function failing(code: string): Writable {
  return new Writable({
    write: (_chunk, _encoding, done) => done(Object.assign(new Error(code), { code })),
  });
}

async function printAll(output: Writable, stop = signal): Promise<number> {
  const printer = new Printer(output, stop);
  for (let count = 0; count < 100; count += 1) {
    if (!(await printer.print("x".repeat(1_000)))) return count;
    await new Promise(setImmediate); // A stream reports its failure in a later turn.
  }
  return 100;
}

test("a closed pipe ends the printing without a failure", async () => {
  expect(await printAll(failing("EPIPE"))).toBeLessThan(3);
});

test("a full disk is a failure", async () => {
  await expect(printAll(failing("ENOSPC"))).rejects.toThrow("ENOSPC");
});

test("lines wait for a slow reader, and stop waiting when the user aborts", async () => {
  const taken: (() => void)[] = [];
  const slow = new Writable({
    highWaterMark: 1,
    write: (_chunk, _encoding, done) => void taken.push(done),
  });
  const stop = new AbortController();
  const printer = new Printer(slow, stop.signal);
  let isPrinted = false;
  const first = printer.print("a").then(() => (isPrinted = true));
  await new Promise(setImmediate);
  expect(isPrinted).toBe(false);
  taken.shift()?.();
  await first;

  const second = printer.print("b");
  stop.abort();
  expect(await second).toBe(true);
});

test("text of a session cannot control the terminal", () => {
  expect(visible("plain é 😀 text")).toBe("plain é 😀 text");
  expect(visible("\u001b[31m\r\n\u009b2J\u007f\u202e\u2066\u2028")).toBe(
    "\\u001b[31m\\u000d\\u000a\\u009b2J\\u007f\\u202e\\u2066\\u2028",
  );
});
