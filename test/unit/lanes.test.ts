import { expect, test } from "vitest";
import { Lanes } from "../../src/ingest/lanes.ts";

test("so much at once, the rest in order, and what is past the limit is refused", async () => {
  const lanes = new Lanes({ lanes: 2, waitingMax: 3 });
  const begun: number[] = [];
  const works = Array.from({ length: 6 }, () => Promise.withResolvers<number>());
  const running = works.map(({ promise }, index) =>
    lanes.run(() => {
      begun.push(index);
      return promise;
    }),
  );
  await expect(running[5]).rejects.toMatchObject({ reason: "QUEUE_FULL" });
  expect(begun).toEqual([0, 1]);
  works[1]?.resolve(1);
  expect(await running[1]).toBe(1);
  works[0]?.reject(new Error("work that fails gives its lane back"));
  await expect(running[0]).rejects.toThrow("gives its lane back");
  expect(begun).toEqual([0, 1, 2, 3]);
  for (const [index, { resolve }] of works.entries()) resolve(index);
  expect(await Promise.all(running.slice(2, 5))).toEqual([2, 3, 4]);
  expect(await lanes.run(() => Promise.resolve("free"))).toBe("free");
});
