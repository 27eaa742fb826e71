/** The room for requests of all callers: what is free, what is counted, and whose turn it is without room. */
import { describe, expect, test } from "vitest";
import { ReceivedBytes } from "../../src/rpc/incoming/received-bytes.ts";

const FREE = 65_536;
const MAX = 1_000_000;

describe("the room for requests", () => {
  test("a share is free up to 64 KiB, however much there is of others", () => {
    const all = new ReceivedBytes({ bytesMax: MAX });
    const large = all.share();
    large.hold(MAX + FREE + 1);
    expect(large.hasRoom).toBe(false);
    const small = all.share();
    small.hold(FREE);
    expect(small.hasRoom).toBe(true);
    small.hold(FREE + 1);
    expect(small.hasRoom).toBe(false);
    expect(all.heldBytes).toBe(MAX + 2 * FREE + 2);
    expect(all.isPressed).toBe(true);
  });

  test("to the byte, and back to nothing", () => {
    const all = new ReceivedBytes({ bytesMax: MAX });
    const [one, other] = [all.share(), all.share()];
    one.hold(FREE + MAX - 1);
    other.hold(FREE + 1);
    expect([one.hasRoom, other.hasRoom]).toEqual([true, true]);
    other.hold(FREE + 2);
    expect([one.hasRoom, other.hasRoom]).toEqual([false, false]);
    one.release();
    expect(other.hasRoom).toBe(true);
    other.release();
    expect(all.heldBytes).toBe(0);
  });

  test("without room the first who waits goes on, alone, until it is done", () => {
    const all = new ReceivedBytes({ bytesMax: MAX });
    const shares = [1, 2, 3].map(() => all.share());
    for (const share of shares) share.hold(MAX);
    const went: number[] = [];
    for (const [at, share] of shares.entries()) share.wait(() => went.push(at));
    expect(went).toEqual([0]);
    expect(shares.map(({ hasRoom }) => hasRoom)).toEqual([true, false, false]);
    shares[0]?.hold(2 * MAX);
    expect(went).toEqual([0]);
    shares[0]?.release();
    expect(went).toEqual([0, 1]);
    shares[2]?.release(); // It does not want to any more, which leaves room for nobody else.
    shares[1]?.leave();
    expect(went).toEqual([0, 1]);
  });

  test("with room again all who wait go on", () => {
    const all = new ReceivedBytes({ bytesMax: MAX });
    const hog = all.share();
    hog.hold(2 * MAX);
    const went: number[] = [];
    const shares = [1, 2, 3].map(() => all.share());
    for (const [at, share] of shares.entries()) {
      share.hold(FREE + 1);
      share.wait(() => went.push(at));
    }
    hog.release();
    expect(went).toEqual([0, 1, 2]);
  });
});
