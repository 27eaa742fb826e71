/** The parts of a request that are read before its route: Accept, Host, path, query and body. */
import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { ServiceError } from "@session-ledger/base/errors";
import {
  checkContentCoding,
  checkHost,
  checkQuery,
  isLoopbackName,
  RouteTable,
  parseQuery,
  wantsEventStream,
} from "../../src/http/plumbing/request-checks.ts";
import { parse } from "../../src/http/plumbing/json-body.ts";
import {
  countParameter,
  flagParameter,
  listParameter,
  seqParameter,
  timeParameter,
} from "../../src/http/parameters.ts";

describe("an Accept header", () => {
  test.each([
    "text/event-stream",
    "text/event-stream; charset=utf-8",
    "TEXT/Event-Stream",
    "text/event-stream, */*",
    "text/event-stream;q=0.5, */*;q=0.5",
    "text/event-stream, application/*",
    "application/json;q=0.5, text/event-stream",
    "application/json;q=0, text/event-stream;q=0.1",
    "text/html, text/event-stream",
  ])("asks for a stream of events: %s", (accept) => expect(wantsEventStream(accept)).toBe(true));

  test.each([
    undefined,
    "",
    "*/*",
    "text/*",
    "application/json",
    "application/json, text/event-stream",
    "application/json, text/event-stream;q=0.5",
    "text/event-stream;q=0",
    "text/event-stream;q=0.5, */*",
    "text/event-stream;q=2",
    "text/event-stream;q=",
    "text/event-streams",
  ])("does not ask for a stream: %s", (accept) => expect(wantsEventStream(accept)).toBe(false));
});

describe("the Host header", () => {
  function request(host: string | undefined, httpVersion = "1.1"): IncomingMessage {
    const message = new IncomingMessage(new Socket());
    message.httpVersion = httpVersion;
    if (host !== undefined) message.headers = { host };
    return message;
  }
  const check = (host: string | undefined, httpVersion?: string) =>
    checkHost(request(host, httpVersion), { isOnLoopback: true });

  test.each([
    "localhost",
    "localhost:8000",
    "LOCALHOST:1",
    "127.0.0.1",
    "127.0.0.1:8000",
    "127.1.2.3:8000",
    "[::1]",
    "[::1]:8000",
  ])("%s names this machine", (host) => expect(check(host)).toBeUndefined());

  test.each([
    "example.com",
    "localhost.example.com",
    "127.0.0.1.example.com",
    "example.com:127",
    "192.168.0.1",
    "[::2]",
    "0.0.0.0",
    "127.0.0.1@example.com",
    "localhost:8000:1",
  ])("%s names another machine and is refused", (host) => expect(check(host)?.status).toBe(421));

  test("is required in HTTP/1.1, and not in HTTP/1.0", () => {
    expect(check(undefined)?.status).toBe(400);
    expect(check("")?.status).toBe(400);
    expect(check(undefined, "1.0")).toBeUndefined();
    expect(check("example.com", "1.0")?.status).toBe(421);
  });

  test("is a loopback name only for loopback addresses", () => {
    expect(["127.0.0.1", "[::1]", "::1", "localhost"].map(isLoopbackName)).not.toContain(false);
    expect(["0.0.0.0", "[::]", "example.com", ""].map(isLoopbackName)).not.toContain(true);
  });
});

describe("paths", () => {
  const routes = new RouteTable();
  routes.add("GET", "/a");
  routes.add(["POST", "PUT"], "/a");
  routes.add("GET", "/a/:id");
  routes.add("GET", "/a/:id/b.c");
  routes.add("POST", "/files/*");

  test.each([
    ["/a", "GET, POST, PUT"],
    ["/a?x=1", "GET, POST, PUT"],
    ["/a/1", "GET"],
    ["/a/1/b.c", "GET"],
    ["/files/x/y", "POST"],
  ])("%s is served, with the methods %s", (url, allow) => {
    const error = routes.refusalOf("DELETE", url);
    expect(error).toMatchObject({ status: 405, headers: { allow } });
  });

  test.each(["/", "/A", "/a/", "/a/1/bxc", "/a/1/2", "/b/a", ""])("%s does not exist", (url) => {
    expect(routes.refusalOf("DELETE", url)).toMatchObject({ status: 404 });
  });
});

describe("the query", () => {
  test("has decoded names and values, and repeated values as an array", () => {
    expect({ ...parseQuery("a=1&b=x%20y+z&a=2&c&%C3%A9=%3D&&d=e=f") }).toEqual({
      a: ["1", "2"],
      b: "x y z",
      c: "",
      é: "=",
      d: "e=f",
    });
  });

  test("takes names of properties of every object as plain names", () => {
    expect({ ...parseQuery("constructor=1&toString=2") }).toEqual({
      constructor: "1",
      toString: "2",
    });
    expect(Object.keys(parseQuery("__proto__=1"))).toEqual(["__proto__"]);
  });

  test.each([
    ["/a?x=%", "x"],
    ["/a?y=1&x=%zz", "x"],
    ["/a?x=%C3", "x"],
    ["/a?%FF=1", "%FF"],
  ])("of %s is refused because of %s", (url, field) => {
    expect(checkQuery(url)).toMatchObject({ code: "invalid_argument", violations: [{ field }] });
  });

  test("is accepted when it is encoded correctly", () => {
    expect(checkQuery("/a")).toBeUndefined();
    expect(checkQuery("/a?")).toBeUndefined();
    expect(checkQuery("/a?x=%F0%9F%98%80+1&x=2")).toBeUndefined();
  });

  test("has a limited number of parameters", () => {
    expect(checkQuery(`/a?${"x&".repeat(255)}x`)).toBeUndefined();
    expect(checkQuery(`/a?${"x&".repeat(256)}x`)).toMatchObject({ code: "invalid_argument" });
  });
});

describe("a body", () => {
  function read(bytes: Buffer | string, contentType = "application/json"): unknown {
    try {
      return parse({ headers: { "content-type": contentType } }, Buffer.from(bytes));
    } catch (error) {
      return error;
    }
  }

  test("is read as JSON, and is undefined when it is empty", () => {
    expect(read('{"a":[1,"é"]}')).toEqual({ a: [1, "é"] });
    expect(read("")).toBeUndefined();
  });

  test.each([
    ["[1,\n2,}", "at character 7 (line 2, column 3)"],
    ['{"a":', "it ends too early"],
    ['["a', "it ends too early"],
    ["tru", "it ends too early"],
    ["hello", "at character 1 (line 1, column 1)"],
    ['{"a":1,}', "at character 8 (line 1, column 8)"],
    ['{"a":tru}', "at character 9 (line 1, column 9)"],
    ["1 2", "at character 3 (line 1, column 3)"],
    [`["${"x".repeat(1_000)}", nul]`, "at character 1009 (line 1, column 1009)"],
    [Buffer.from([0x22, 0xff, 0x22]), "it is not UTF-8"],
  ])("of %j is refused: %s", (bytes, where) => {
    const error = read(bytes);
    if (!(error instanceof ServiceError)) throw new Error("it was read");
    expect(error).toMatchObject({
      code: "invalid_argument",
      message: `the body is not valid JSON: ${where}`,
    });
  });

  test("is not quoted in the error when it is broken", () => {
    expect(String(read('{"secret": tru'))).not.toContain("secret");
    expect(String(read('{"a": "secret" "b"}'))).not.toContain("secret");
  });

  test.each(["utf-8", "UTF-8", '"utf-8"', "utf8", "utf-8; x=y"])(
    "with charset=%s is read",
    (charset) => expect(read("{}", `application/json; charset=${charset}`)).toEqual({}),
  );

  test.each(["latin1", "ISO-8859-1", "utf-16", '"utf-16"', ""])(
    "regression: with charset=%s is refused",
    (charset) => {
      const error = read("{}", `application/json;charset=${charset}`);
      expect(error).toMatchObject({ status: 415, violations: [{ field: "Content-Type" }] });
    },
  );

  test.each([
    ['{"payload":"a","payload":"b"}', "payload"],
    ['{"payload":"a","x":{"y":1,"y":2},"pay\\u006coad":"b"}', "payload"],
    ['{ "a" : "\\"a" , "b" : [ "a" , {} ] , "a" : null }', "a"],
  ])("regression: of %s is refused because of its repeated key %s", (body, field) => {
    expect(read(body)).toMatchObject({ code: "invalid_argument", violations: [{ field }] });
  });

  test("may have the same key in two objects, or as a value", () => {
    const body = { a: "a", b: { a: 1 }, c: [{ a: 1 }, { a: 1 }], d: '"a":1' };
    expect(read(JSON.stringify(body))).toEqual(body);
    expect(read('["a","a"]')).toEqual(["a", "a"]);
    expect(read('{"__proto__":1,"a":2}')).toEqual(JSON.parse('{"__proto__":1,"a":2}'));
  });

  test("with many keys is refused for a repeated one, without its name", () => {
    const keys = Array.from({ length: 1_000 }, (_, n) => `"k${n}":${n}`).join();
    expect(Object.keys(Object(read(`{${keys}}`)))).toHaveLength(1_000);
    expect(read(`{${keys},"k0":0}`)).toMatchObject({ violations: [{ field: "" }] });
  });

  test("is refused when it is compressed", () => {
    expect(checkContentCoding(undefined)).toBeUndefined();
    expect(checkContentCoding("Identity")).toBeUndefined();
    expect(checkContentCoding("gzip")).toMatchObject({ status: 415 });
  });
});

describe("a parameter", () => {
  const seq = seqParameter("");
  const count = countParameter("", { fallback: 100, max: 1_000 });
  const flag = flagParameter("");
  const list = listParameter("");
  const time = timeParameter("");

  test("is read as its kind, up to the largest; bad-input-http.test.ts has the wrong ones", () => {
    expect(seq.parse(undefined)).toBeUndefined();
    expect(seq.parse("0")).toBe(0n);
    expect(seq.parse("9223372036854775807")).toBe(9_223_372_036_854_775_807n);
    expect([undefined, "1", "1000"].map((text) => count.parse(text))).toEqual([100, 1, 1_000]);
    const read = [undefined, "true", "false"].map((text) => flag.parse(text));
    expect(read).toEqual([false, true, false]);
    expect(list.parse(undefined)).toEqual([]);
    expect(list.parse("a")).toEqual(["a"]);
    expect(list.parse(["a", "b"])).toEqual(["a", "b"]);
  });

  test.each([
    ["1970-01-01T00:00:00Z", 0n],
    ["1970-01-01T00:00:00.000001Z", 1n],
    ["1970-01-01T00:00:00.0000019Z", 1n],
    ["1970-01-01T00:00:01.5z", 1_500_000n],
    ["1970-01-01t01:00:00+01:00", 0n],
    ["1969-12-31T23:59:59.999999Z", -1n],
    ["2024-02-29T00:00:00Z", 1_709_164_800_000_000n],
    ["0001-01-01T00:00:00Z", -62_135_596_800_000_000n],
    ["9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999n],
  ])("may be the time %s", (text, micros) => expect(time.parse(text)).toBe(micros));

  test.each([
    "",
    "now",
    "1970-01-01",
    "1970-01-01T00:00:00",
    "1970-01-01 00:00:00Z",
    "1970-13-01T00:00:00Z",
    "2026-02-29T00:00:00Z",
    "1970-01-01T25:00:00Z",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00",
    "1970-01-01T00:00:00.Z",
    "1700000000",
  ])("may not be the time %s", (text) => expect(time.safeParse(text).success).toBe(false));

  test.each([
    ["1970-01-01T00:00:00 00:00", /^must be a time like .*; a \+ in a URL is written as %2B$/],
    ["1970-01-01T00:00:00.5 0100", /%2B$/],
    ["1970-01-01T00:00:00", /^must have a zone, as a time like .*Z, /],
    ["1970-01-01t00:00:00.123", /^must have a zone, /],
    ["1970-01-01 00:00:00Z", /^must be a time like .* 9999$/],
    ["now", /^must be a time like .* 9999$/],
  ])("regression: with the time %j is refused with a hint at the fault", (text, description) => {
    expect(time.safeParse(text).error?.issues[0]?.message).toMatch(description);
  });
});
