import { once } from "node:events";
import { createConnection } from "node:net";
import { describe, expect, test } from "vitest";
import type { Unit } from "../../src/base/unit.ts";

/** The parts of the contract that differ for each kind of unit. */
export interface UnitUnderContract<U extends Unit> {
  /** A new unit, not yet started; called once a test. */
  create(): U | Promise<U>;
  /** Whether a started unit does its work. */
  isOfUse(unit: U): boolean | Promise<boolean>;
  /** Everything of a stopped unit that still runs, in words; must be empty. */
  remains(unit: U): readonly string[] | Promise<readonly string[]>;
  /** A unit whose start fails, and why; left out where a start cannot fail. */
  readonly broken?: { create(): U | Promise<U>; readonly failure: RegExp };
}

/** The contract of src/base/unit.ts, for any unit: call it at the top of a test file. */
export function describeUnitContract<U extends Unit>(
  name: string,
  kind: UnitUnderContract<U>,
): void {
  describe(`${name} keeps the unit contract`, () => {
    test("start resolves when the unit is ready, stop when nothing of it runs", async () => {
      const unit = await kind.create();
      await unit.start();
      expect(await kind.isOfUse(unit)).toBe(true);
      await unit.stop();
      expect(await kind.remains(unit)).toEqual([]);
    });

    test("stop works before start", async () => {
      const unit = await kind.create();
      await unit.stop();
      expect(await kind.remains(unit)).toEqual([]);
    });

    test("stop is idempotent, one after the other", async () => {
      const unit = await kind.create();
      await unit.start();
      await unit.stop();
      await unit.stop();
      expect(await kind.remains(unit)).toEqual([]);
    });

    test("stop is idempotent at the same time, and each waits for the end", async () => {
      const unit = await kind.create();
      await unit.start();
      const remains = [unit.stop(), unit.stop()].map(async (stopped) => {
        await stopped;
        return kind.remains(unit);
      });
      expect(await Promise.all(remains)).toEqual([[], []]);
    });

    test("stop works while start is under way", async () => {
      const unit = await kind.create();
      // The start may succeed or fail; it must settle and leave nothing.
      const [, stopped] = await Promise.allSettled([unit.start(), unit.stop()]);
      expect(stopped).toEqual({ status: "fulfilled", value: undefined });
      expect(await kind.remains(unit)).toEqual([]);
    });

    const { broken } = kind;
    if (broken === undefined) return;
    test("stop works after a start that failed", async () => {
      const unit = await broken.create();
      await expect(unit.start()).rejects.toThrow(broken.failure);
      await unit.stop();
      expect(await kind.remains(unit)).toEqual([]);
    });
  });
}

export async function isListening(address: string): Promise<boolean> {
  const [host = "", port] = address.split(":");
  const socket = createConnection({ host, port: Number(port) });
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** What remains of a server; one that still has port 0 never listened. */
export async function listenerOf({ address }: { readonly address: string }) {
  return !address.endsWith(":0") && (await isListening(address)) ? ["the listener"] : [];
}
