import { expect, test } from "vitest";
import { Semaphore } from "../../src/base/semaphore.ts";

const full = (): Error => new Error("too many wait");

test("a semaphore runs a few actions, queues the next in order, and refuses the rest", async () => {
  const semaphore = new Semaphore({ atOnce: 2, waiting: { max: 3, full } });
  const begun: number[] = [];
  const works = Array.from({ length: 6 }, () => Promise.withResolvers<number>());
  const running = works.map(({ promise }, index) =>
    semaphore.run(() => {
      begun.push(index);
      return promise;
    }),
  );
  await expect(running[5]).rejects.toThrow("too many wait");
  expect(begun).toEqual([0, 1]);
  works[1]?.resolve(1);
  expect(await running[1]).toBe(1);
  works[0]?.reject(new Error("work that fails gives its place back"));
  await expect(running[0]).rejects.toThrow("gives its place back");
  expect(begun).toEqual([0, 1, 2, 3]);
  for (const [index, { resolve }] of works.entries()) resolve(index);
  expect(await Promise.all(running.slice(2, 5))).toEqual([2, 3, 4]);
  expect(await semaphore.run(() => Promise.resolve("free"))).toBe("free");
});

test("an abort ends the wait of an action and leaves the order of the others", async () => {
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
