import { validate, version } from "uuid";
import { expect, test } from "vitest";
import { rowId } from "../../src/handlers/push.ts";

test("ids are of version 7 and differ, also after the pool is refilled", () => {
  const ids = Array.from({ length: 2_000 }, () => rowId());
  expect(new Set(ids).size).toBe(2_000);
  expect(ids.every((id) => validate(id) && version(id) === 7)).toBe(true);
});
