/** What an app gives to a view: the props and the token. */
import { describe, expect, test } from "vitest";
import { AppConnection } from "../src/api/app-connection.ts";
import { faultIn } from "../src/props.ts";

const GOOD = { url: "https://ledger.example/path", session: "s" };

describe("the props of a view", () => {
  test("are good with an address and an id, with a token of either kind, and with every choice", () => {
    expect(faultIn(GOOD)).toBeUndefined();
    expect(faultIn({ ...GOOD, url: "http://127.0.0.1:8000/" })).toBeUndefined();
    for (const token of ["abc", () => "abc"]) expect(faultIn({ ...GOOD, token })).toBeUndefined();
    for (const theme of ["light", "dark", "system"])
      expect(faultIn({ ...GOOD, theme })).toBeUndefined();
    for (const parts of ["all", "conversation"])
      expect(faultIn({ ...GOOD, parts })).toBeUndefined();
  });

  test.each([
    ["url", { url: "" }, "empty"],
    ["url", { url: undefined }, "undefined"],
    ["url", { url: "ledger.example" }, "ledger.example"],
    ["url", { url: "ftp://ledger.example" }, "ftp:"],
    ["url", { url: "https://ledger.example/?a=1" }, "without a query"],
    ["url", { url: "https://user:secret@ledger.example" }, "http or https"],
    ["session", { session: "" }, "empty"],
    ["session", { session: 7 }, "7"],
    ["token", { token: "" }, "1 to 8,192"],
    ["token", { token: "two words" }, "ASCII"],
    ["token", { token: 7 }, "or a function"],
    ["theme", { theme: "blue" }, "light, dark or system"],
    ["parts", { parts: "state" }, "all or conversation"],
  ])("name %s when it is %j", (name, props, expected) => {
    const fault = faultIn({ ...GOOD, ...props });
    expect(fault).toContain(`${name}: `);
    expect(fault).toContain(expected);
  });

  test("never show a token", () => {
    expect(faultIn({ ...GOOD, token: "a secret" })).not.toContain("secret");
  });
});

describe("the token of an app", () => {
  test("is a text, which is sent until the app gives another one", async () => {
    const connection = new AppConnection("https://ledger.example///");
    expect(connection.url).toBe("https://ledger.example");
    expect(await connection.token()).toBeUndefined();
    connection.give("one");
    expect(await connection.token()).toBe("one");
    expect(await connection.anotherToken("one")).toBeUndefined();
    connection.give("two");
    expect(await connection.anotherToken("one")).toBe("two");
  });

  test("is asked for once by calls at the same time, and again after a refusal", async () => {
    const connection = new AppConnection("https://ledger.example");
    let asked = 0;
    connection.give(async () => `token-${(asked += 1)}`);
    expect(await Promise.all([connection.token(), connection.token()])).toEqual([
      "token-1",
      "token-1",
    ]);
    // A function of the next render is the same one for the view.
    connection.give(async () => `token-${(asked += 1)}`);
    expect(await connection.token()).toBe("token-1");
    const refused = [connection.anotherToken("token-1"), connection.anotherToken("token-1")];
    expect(await Promise.all(refused)).toEqual(["token-2", "token-2"]);
    // This call was refused with the token before.
    expect(await connection.anotherToken("token-1")).toBe("token-2");
    expect(asked).toBe(2);
  });

  test("that a function gives again after a refusal is no other one", async () => {
    const connection = new AppConnection("https://ledger.example");
    connection.give(() => "same");
    expect(await connection.token()).toBe("same");
    expect(await connection.anotherToken("same")).toBeUndefined();
  });

  test("that no header can carry is refused with what was expected, and without its text", async () => {
    const connection = new AppConnection("https://ledger.example");
    connection.give(() => "a secret");
    const refusal = connection.token();
    await expect(refusal).rejects.toThrow("token: the function gave none, expected 1 to 8,192");
    await expect(refusal).rejects.not.toThrow("secret");
  });

  test("of other rights is announced: not the first one, and not a function alone", async () => {
    const connection = new AppConnection("https://ledger.example");
    const revisions: number[] = [];
    connection.subscribe(() => revisions.push(connection.revision()));
    connection.give("one");
    connection.give("two");
    connection.give(() => "three");
    await connection.token();
    connection.give(() => "four");
    expect(revisions).toEqual([1, 2]);
    await connection.anotherToken("three");
    expect(revisions).toEqual([1, 2, 3]);
  });
});
