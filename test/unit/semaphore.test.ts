/** Its limits and its order are in the tests of what uses it. */
import { expect, test } from "vitest";
import { Semaphore } from "../../src/base/semaphore.ts";

test("an action whose signal is aborted never begins, and leaves its place to the next", async () => {
  const full = (): Error => new Error("too many wait");
  const semaphore = new Semaphore({ atOnce: 1, waiting: { max: 3, full } });
  const first = Promise.withResolvers<void>();
  const running = semaphore.run(() => first.promise);
  const abort = new AbortController();
  const left = semaphore.run(() => "never", abort.signal);
  const next = semaphore.run(() => "next");
  abort.abort(new Error("the caller left"));
  await expect(left).rejects.toThrow("the caller left");
  await expect(semaphore.run(() => "never", abort.signal)).rejects.toThrow("the caller left");
  first.resolve();
  await running;
  expect(await next).toBe("next");
});
